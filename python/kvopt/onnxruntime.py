"""Driving rewritten models in ONNX Runtime, with each cache bound as its manifest says, and kvopt's kernels inside it.

    import kvopt.onnxruntime, onnxruntime
    kvopt.rewrite("decoder.onnx", "fused.onnx")
    options = onnxruntime.SessionOptions()
    kvopt.onnxruntime.register(options)
    session = onnxruntime.InferenceSession("fused.onnx", options)
    decoder = kvopt.onnxruntime.Decoder(session, capacity=4096)
    print(decoder.generate([1, 2, 3], 16))

``python3 -m kvopt.onnxruntime fused.onnx 1,2,3 16`` does the same.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, Type, Union

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnxruntime

    from ._operations import Result
    from ._types import StrPath

__all__ = ["Decoder", "get_ep_name", "get_library_path", "register"]

_DTYPES: Dict[str, Type[np.generic]] = {
    "float": np.float32, "float16": np.float16, "double": np.float64, "int64": np.int64, "int32": np.int32,
    "int8": np.int8, "uint8": np.uint8, "bool": np.bool_}


def get_library_path() -> str:
    """Absolute path of the library that ONNX Runtime loads: ``$KVOPT_ONNXRUNTIME_LIBRARY``, or the one in this package.

    The same file is an execution provider, from ONNX Runtime 1.23 on, and a library of custom operators, from 1.16 on.
    """
    path = os.environ.get("KVOPT_ONNXRUNTIME_LIBRARY") or os.path.join(
        os.path.dirname(__file__), "lib", "libkvopt_onnxruntime.so")
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path} does not exist: this package was built without the library for ONNX Runtime; set "
                                "KVOPT_ONNXRUNTIME_LIBRARY to its path")
    return os.path.abspath(path)


def get_ep_name() -> str:
    """Name of the execution provider, which is also a part of the names of its options."""
    return "kvopt"


def register(session_options: onnxruntime.SessionOptions,
             **options: Union[str, int]) -> Literal["provider", "operators"]:
    """Makes sessions with these options compute attention with kvopt's kernels, where the result is the same.

    The model needs no rewrite: the provider claims GroupQueryAttention, MultiHeadAttention, ONNX's Attention (from ONNX
    Runtime 1.30 on) and kvopt's own operators. Before ONNX Runtime 1.23, which has no such providers, kvopt's own
    operators are registered alone.

    Args:
        session_options: An ``onnxruntime.SessionOptions``.
        options: Options of the provider, such as ``off="1"``.

    Returns:
        ``"provider"`` or ``"operators"``: what was registered.
    """
    import onnxruntime

    if not hasattr(session_options, "add_provider_for_devices"):
        session_options.register_custom_ops_library(get_library_path())
        return "operators"

    def devices() -> List[onnxruntime.OrtEpDevice]:
        return [device for device in onnxruntime.get_ep_devices() if device.ep_name == get_ep_name()]

    if not devices():
        onnxruntime.register_execution_provider_library(get_ep_name(), get_library_path())
    session_options.add_provider_for_devices(devices()[:1], {name: str(value) for name, value in options.items()})
    return "provider"


def _dtype(text: str) -> Type[np.generic]:
    name = text[len("tensor("):-1]
    if name not in _DTYPES:
        raise TypeError(f"numpy has no arrays of {text}")
    return _DTYPES[name]


def _manifest(session: onnxruntime.InferenceSession,
              given: Union[None, StrPath, Mapping[str, Any], Result[Any]]) -> Mapping[str, Any]:
    if given is None:
        text = session.get_modelmeta().custom_metadata_map.get("kvopt.manifest")
        if text is None:
            raise ValueError("the model has no manifest: rewrite it with kvopt, or give the manifest")
        manifest: Mapping[str, Any] = json.loads(text)
    elif isinstance(given, (str, os.PathLike)):
        with open(given) as file:
            manifest = json.load(file)
    else:
        manifest = given if isinstance(given, Mapping) else given.manifest
    return manifest


class Decoder:
    """A batch of sequences that ONNX Runtime decodes on the CPU.

    Caches that are one buffer are bound as past and present: a step writes new rows and copies nothing. Caches that grow
    are handed from step to step. Prompts, chunks of them and single tokens are all fed with `feed`.

    Args:
        session: An ``onnxruntime.InferenceSession``.
        manifest: A dict, a path, a `kvopt.Result`, or None for the manifest in the model's metadata.
        batch: Number of sequences.
        capacity: Number of tokens that buffers have room for, if the manifest does not fix it.
        inputs: Arrays that every step is fed by name, such as what an encoder computed.

    Attributes:
        session: The session of ONNX Runtime.
        manifest: How to drive the model (docs/manifest.md).
        batch: Number of sequences.
        capacity: Number of tokens that buffers have room for.
        constant: Arrays that every step is fed, by the names of inputs.
    """

    def __init__(self, session: onnxruntime.InferenceSession,
                 manifest: Union[None, StrPath, Mapping[str, Any], Result[Any]] = None, *, batch: int = 1,
                 capacity: int = 2048, inputs: Optional[Mapping[str, npt.ArrayLike]] = None) -> None:
        self.session, self.manifest = session, _manifest(session, manifest)
        for key in ("variants", "tiles"):
            if self.manifest.get(key):
                raise ValueError(f"a model in {key} is driven by kvopt.Session")
        self.constant: Dict[str, npt.ArrayLike] = dict(inputs or {})
        self.capacity: int = self.manifest["capacity"]["value"] or capacity
        self._types = {value.name: _dtype(value.type) for value in session.get_inputs()}
        self._outputs = [value.name for value in session.get_outputs()]
        self._caches: List[Dict[str, Any]] = [
            cache for cache in self.manifest["caches"] if cache.get("kind") != "cross"]
        for cache in self._caches:
            if cache.get("pool") or cache["policy"] == "block":
                raise ValueError("caches in blocks are driven by kvopt.Session")
        self._grows = any(not cache["one_buffer"] for cache in self._caches)
        self.batch = batch
        self.reset()

    # ---- Caches

    def _extents(self, cache: Mapping[str, Any]) -> List[int]:
        symbol = self.manifest["capacity"]["symbol"]
        extents = []
        for axis, extent in enumerate(cache["shape"]):
            if isinstance(extent, int):
                extents.append(extent)
            elif axis == cache["sequence_axis"]:
                extents.append(self.capacity if cache["one_buffer"] or extent == symbol else 0)
            else:
                extents.append(self.batch)
        return extents

    def reset(self) -> None:
        """Drops all tokens."""
        self._mask: npt.NDArray[np.int64] = np.zeros((self.batch, 0), np.int64)
        self._buffers: Dict[str, npt.NDArray[Any]] = {
            cache["past"]: np.zeros(self._extents(cache), self._types[cache["past"]]) for cache in self._caches}
        self._grown: Dict[str, onnxruntime.OrtValue] = {}
        self._binding: Optional[onnxruntime.IOBinding] = None

    @property
    def length(self) -> int:
        """Number of tokens in the caches, padding included."""
        return self._mask.shape[1]

    def crop(self, tokens: int) -> None:
        """Keeps the first ``tokens`` tokens of every sequence."""
        if not 0 <= tokens <= self.length:
            raise ValueError(f"there are {self.length} tokens, not {tokens}")
        for cache in self._caches:
            if cache["policy"] not in ("fixed", "grow"):
                raise ValueError(f"{cache['past']} does not hold what it held before")
            if not cache["one_buffer"]:
                rows = self._rows(cache)
                self._replace(cache, np.take(rows, range(tokens), cache["sequence_axis"]))
        self._mask = self._mask[:, :tokens]

    def reorder(self, rows: npt.ArrayLike) -> None:
        """Makes sequence i what sequence ``rows[i]`` was; rows, [new batch], may be repeated or left out."""
        rows = np.asarray(rows, np.int64)
        for cache in self._caches:
            axis = next((axis for axis, extent in enumerate(cache["shape"])
                         if isinstance(extent, str) and axis != cache["sequence_axis"]), None)
            if axis is None:
                raise ValueError(f"{cache['past']} has no axis for the batch")
            self._replace(cache, np.take(self._rows(cache), rows, axis))
        self._mask, self.batch = self._mask[rows], len(rows)

    def _rows(self, cache: Mapping[str, Any]) -> npt.NDArray[Any]:
        name = cache["past"]
        rows: npt.NDArray[Any] = self._grown[name].numpy() if name in self._grown else self._buffers[name]
        return rows

    def _replace(self, cache: Mapping[str, Any], rows: npt.NDArray[Any]) -> None:
        self._grown.pop(cache["past"], None)
        self._binding = None
        self._buffers[cache["past"]] = np.ascontiguousarray(rows)

    # ---- Steps

    def _numbers(self, feed: str, new: int) -> int:
        past, total = self.length, self.length + new
        word = feed.replace("_per_batch", "")
        minus = word.endswith("_minus_one")
        values = {"past_length": past, "total_length": total, "new_length": new, "has_past": past > 0,
                  "no_past": past == 0}
        word = word[:-len("_minus_one")] if minus else word
        if word not in values:
            raise ValueError(f"the manifest feeds '{feed}', which this decoder does not know")
        return values[word] - minus

    def _feeds(self, tokens: npt.NDArray[np.int64],
               mask: npt.NDArray[np.int64]) -> Tuple[Dict[str, npt.ArrayLike], npt.NDArray[np.int64]]:
        new, seen = tokens.shape[1], np.concatenate([self._mask, mask], axis=1)
        positions = np.maximum(np.cumsum(seen, axis=1) - 1, 0)[:, self.length:]
        feeds = {"input_ids": tokens, "decoder_input_ids": tokens, "attention_mask": seen, "position_ids": positions,
                 "cache_position": np.arange(self.length, self.length + new)}
        for length in self.manifest["lengths"]:
            extents = [extent if isinstance(extent, int) else self.batch for extent in length["shape"]]
            feeds[length["input"]] = np.full(extents, self._numbers(length["feed"], new))
        feeds.update(self.constant)
        return feeds, seen

    def _bind_caches(self) -> onnxruntime.IOBinding:
        """Binds the caches, buffers once and what grows anew in each step, and returns the binding."""
        if self._binding and not self._grows:
            return self._binding
        # Outputs of a step are in the memory of its binding, which must stay until the next step is over.
        binding = self.session.io_binding()
        self._former, self._binding = self._binding, binding
        for cache in self._caches:
            name = cache["past"]
            if name in self._grown:
                binding.bind_ortvalue_input(name, self._grown[name])
                continue
            buffer = self._buffers[name]
            binding.bind_input(name, "cpu", 0, buffer.dtype.type, buffer.shape, buffer.ctypes.data)
            if cache["one_buffer"]:
                binding.bind_output(cache["present"], "cpu", 0, buffer.dtype.type, buffer.shape, buffer.ctypes.data)
        return binding

    def feed(self, tokens: npt.ArrayLike, mask: Optional[npt.ArrayLike] = None) -> Dict[str, npt.NDArray[Any]]:
        """Appends tokens, [batch, count] or [count], and returns the outputs by their names as numpy arrays.

        ``mask`` is 0 where a token is padding, of the same shape; padding is on the left of a prompt. The outputs have
        the model's shapes, such as [batch, count, vocabulary] for logits.
        """
        tokens = np.atleast_2d(np.asarray(tokens, np.int64))
        if tokens.ndim != 2 or tokens.shape[0] != self.batch:
            raise ValueError(f"tokens are [{self.batch}, count], not {list(tokens.shape)}")
        mask = np.ones_like(tokens) if mask is None else np.atleast_2d(np.asarray(mask, np.int64))
        if mask.shape != tokens.shape:
            raise ValueError("the mask has another shape than the tokens")
        in_place = any(cache["one_buffer"] and cache["policy"] == "fixed" for cache in self._caches)
        if in_place and self.length + tokens.shape[1] > self.capacity:
            raise ValueError(f"the caches have room for {self.capacity} tokens, not {self.length + tokens.shape[1]}")
        feeds, seen = self._feeds(tokens, mask)
        binding = self._bind_caches()
        pasts = {cache["past"] for cache in self._caches}
        kept: List[npt.NDArray[Any]] = []  # a binding does not keep its arrays alive
        for name, dtype in self._types.items():
            if name in pasts:
                continue
            if name not in feeds:
                raise ValueError(f"the model reads '{name}': give it in inputs={{'{name}': …}}")
            kept.append(np.ascontiguousarray(feeds[name], dtype))
            binding.bind_input(name, "cpu", 0, dtype, kept[-1].shape, kept[-1].ctypes.data)
        in_one = {cache["present"] for cache in self._caches if cache["one_buffer"]}
        for name in self._outputs:
            if name not in in_one:
                binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        made = dict(zip([*(cache["present"] for cache in self._caches if cache["one_buffer"]),
                         *(name for name in self._outputs if name not in in_one)], binding.get_outputs()))
        for cache in self._caches:
            if not cache["one_buffer"]:
                self._grown[cache["past"]] = made[cache["present"]]
        self._mask = seen
        presents = {cache["present"] for cache in self._caches}
        return {name: made[name].numpy() for name in self._outputs if name not in presents}

    def generate(self, prompt: npt.ArrayLike, steps: int, mask: Optional[npt.ArrayLike] = None) -> List[List[int]]:
        """Feeds a prompt and generates ``steps`` tokens for each sequence greedily, as lists.

        ``prompt`` and ``mask`` are as of `feed`.
        """
        made: List[List[int]] = [[] for _ in range(self.batch)]
        fed = prompt
        for _ in range(steps):
            outputs = self.feed(fed, mask)
            scores = outputs["logits"] if "logits" in outputs else next(iter(outputs.values()))
            tokens: npt.NDArray[np.int64] = scores[:, -1].argmax(-1)[:, None]
            fed, mask = tokens, None
            for row, token in zip(made, tokens):
                row += token.tolist()
        return made


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Decodes greedily: MODEL TOKENS STEPS."""
    import argparse

    parser = argparse.ArgumentParser(prog="python3 -m kvopt.onnxruntime",
                                     description="Decodes greedily with a model that kvopt wrote, in ONNX Runtime.")
    parser.add_argument("model", help="ONNX file")
    parser.add_argument("tokens", help="prompt as token ids, separated by commas")
    parser.add_argument("steps", type=int, nargs="?", default=8, help="number of tokens to generate (default: 8)")
    parser.add_argument("--capacity", type=int, help="number of tokens that buffers have room for (default: as needed)")
    given = parser.parse_args(arguments)
    try:
        prompt = [int(token) for token in given.tokens.split(",")]
    except ValueError:
        parser.error(f"'{given.tokens}' is not a list of token ids")
    try:
        import onnxruntime
    except ImportError:
        parser.exit(1, "kvopt: ONNX Runtime is not installed: pip install onnxruntime\n")
    session = onnxruntime.InferenceSession(given.model, providers=["CPUExecutionProvider"])
    decoder = Decoder(session, capacity=given.capacity or len(prompt) + given.steps)
    print(",".join(map(str, decoder.generate(prompt, given.steps)[0])))


if __name__ == "__main__":
    main()
