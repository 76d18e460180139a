"""Decoding of rewritten models in ONNX Runtime."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple, Type, Union

import numpy as np

from ._step_inputs import StepInputs, checked_tokens

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnxruntime

    from .._operations import Result
    from .._types import StrPath

_DTYPES: Dict[str, Type[np.generic]] = {
    "float": np.float32, "float16": np.float16, "double": np.float64, "int64": np.int64, "int32": np.int32,
    "int8": np.int8, "uint8": np.uint8, "bool": np.bool_}


def dtype_of(text: str) -> Type[np.generic]:
    name = text[len("tensor("):-1]
    if name not in _DTYPES:
        raise TypeError(f"numpy has no arrays of {text}")
    return _DTYPES[name]


def read_manifest(session: onnxruntime.InferenceSession,
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
    are handed from step to step. Prompts, chunks of them and single tokens are all fed with `feed`, which takes as many
    steps as the model needs. What the manifest excludes, such as padding on the other side, is an error.

    Args:
        session: An ``onnxruntime.InferenceSession``.
        manifest: A dict, a path, a `kvopt.Result`, or None for the manifest in the model's metadata.
        batch: Number of sequences.
        capacity: Number of tokens that the caches have room for; None for that of the manifest, or 2,048.
        inputs: Arrays that every step is fed by name, such as what an encoder computed.

    Attributes:
        session: The session of ONNX Runtime.
        manifest: How to drive the model (docs/manifest.md).
        batch: Number of sequences.
        capacity: Number of tokens that the caches have room for.
        constant: Arrays that every step is fed, by the names of inputs.
    """

    def __init__(self, session: onnxruntime.InferenceSession,
                 manifest: Union[None, StrPath, Mapping[str, Any], Result[Any]] = None, *, batch: int = 1,
                 capacity: Optional[int] = None, inputs: Optional[Mapping[str, npt.ArrayLike]] = None) -> None:
        self.session, self.manifest = session, read_manifest(session, manifest)
        for key in ("variants", "tiles"):
            if self.manifest.get(key):
                raise ValueError(f"a model in {key} is driven by kvopt.Session")
        self.constant: Dict[str, npt.ArrayLike] = dict(inputs or {})
        fixed = self.manifest["capacity"]["value"]
        if capacity is not None and (capacity < 1 or (fixed is not None and capacity != fixed)):
            raise ValueError(f"the capacity is {fixed}, not {capacity}" if fixed else f"no capacity of {capacity}")
        self.capacity: int = fixed or capacity or 2048
        # Buffers need a capacity; caches that grow have one only if the caller wants a limit.
        self._has_limit = capacity is not None
        self._types = {value.name: dtype_of(value.type) for value in session.get_inputs()}
        self._made = StepInputs(self.manifest, self._types, {value.name: value.shape for value in session.get_inputs()})
        self._outputs = [value.name for value in session.get_outputs()]
        # Without an axis of all new tokens, an output is that of the last step.
        self._whole = {value.name for value in session.get_outputs()
                       if len(value.shape) >= 2 and not isinstance(value.shape[1], int)}
        self._caches: List[Dict[str, Any]] = [
            cache for cache in self.manifest["caches"] if cache.get("kind") != "cross"]
        for cache in self._caches:
            if cache.get("form") == "pool" or cache["policy"] == "block":
                raise ValueError("caches in blocks are driven by kvopt.Session")
            if not cache["past"]:
                raise ValueError("a model that keeps its caches to itself is driven by kvopt.Session")
        self._grows = any(not cache["one_buffer"] for cache in self._caches)
        self.batch = batch
        self.reset()

    @property
    def missing(self) -> List[str]:
        """Names of inputs that neither the manifest describes nor ``constant`` has, such as an encoder's results."""
        pasts = {cache["past"] for cache in self._caches}
        return [name for name in self._types
                if name not in pasts and name not in self.constant and not self._made.made(name)]

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

        ``mask`` is 0 where a token is padding, of the same shape. Padding is on the left of a prompt or, where the manifest
        has ``"padding": "right"``, on its right. The outputs have the model's shapes, such as [batch, count, vocabulary]
        for logits. If the model needs several steps, outputs of all new tokens are joined along their second axis.
        """
        checked, seen = checked_tokens(tokens, mask, self.batch, self._made.largest_token())
        if self.missing:
            names = ", ".join(f"'{name}'" for name in self.missing)
            what = "the results of an encoder" if self.reads_encoder() else "what only its caller knows"
            raise ValueError(f"the model reads {what}: give inputs={{…}} with {names}")
        self._made.check_padding(seen, self.length)
        count = checked.shape[1]
        self._check_room(count)
        steps: List[Tuple[int, Dict[str, npt.NDArray[Any]]]] = []
        done = 0
        while done < count:
            width = self._made.step_tokens(count - done, self.batch, self.length)
            steps.append((width, self._step(checked[:, done:done + width], seen[:, done:done + width])))
            done += width
        if len(steps) == 1:
            return steps[0][1]
        return {name: np.concatenate([made[name] for _, made in steps], axis=1)
                if name in self._whole and all(made[name].shape[1] == width for width, made in steps) else last
                for name, last in steps[-1][1].items()}

    def reads_encoder(self) -> bool:
        """Whether some of the `missing` inputs are the results of an encoder."""
        caches = {cache["past"] for cache in self.manifest["caches"] if cache.get("kind") == "cross"}
        states = {value.name for value in self.session.get_inputs()
                  if len(value.shape) >= 3 and value.type in ("tensor(float)", "tensor(float16)")}
        return bool((caches | states) & set(self.missing))

    def _check_room(self, count: int) -> None:
        total, rooms = self.length + count, []
        if self._has_limit or any(cache["one_buffer"] and cache["policy"] == "fixed" for cache in self._caches):
            rooms.append(self.capacity)
        rooms += [self._buffers[cache["past"]].shape[cache["sequence_axis"]] for cache in self._caches
                  if cache["policy"] == "static"]
        if rooms and total > min(rooms):
            raise ValueError(f"the caches have room for {min(rooms)} tokens, not {total}")

    def _step(self, tokens: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_]) -> Dict[str, npt.NDArray[Any]]:
        seen = np.concatenate([self._mask, mask], axis=1)
        binding = self._bind_caches()
        pasts = {cache["past"] for cache in self._caches}
        kept: List[npt.NDArray[Any]] = []  # a binding does not keep its arrays alive
        for name, dtype in self._types.items():
            if name in pasts:
                continue
            made = (self.constant[name] if name in self.constant else
                    self._made.tensor(name, tokens, seen, self.length))
            kept.append(np.ascontiguousarray(made, dtype))
            binding.bind_input(name, "cpu", 0, dtype, kept[-1].shape, kept[-1].ctypes.data)
        in_one = {cache["present"] for cache in self._caches if cache["one_buffer"]}
        for name in self._outputs:
            if name not in in_one:
                binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        results = dict(zip([*(cache["present"] for cache in self._caches if cache["one_buffer"]),
                            *(name for name in self._outputs if name not in in_one)], binding.get_outputs()))
        for cache in self._caches:
            if cache["one_buffer"]:
                continue
            if cache.get("present_rows") == "new":
                rows = results[cache["present"]].numpy()
                self._replace(cache, np.concatenate([self._rows(cache), rows], cache["sequence_axis"]))
            else:
                self._grown[cache["past"]] = results[cache["present"]]
        self._mask = seen
        presents = {cache["present"] for cache in self._caches}
        return {name: results[name].numpy() for name in self._outputs if name not in presents}

    def generate(self, prompt: npt.ArrayLike, steps: int, mask: Optional[npt.ArrayLike] = None) -> List[List[int]]:
        """Feeds a prompt and generates ``steps`` tokens for each sequence greedily, as lists.

        ``prompt`` and ``mask`` are as of `feed`. The first token of a sequence follows its last token that is no padding.
        """
        made: List[List[int]] = [[] for _ in range(self.batch)]
        fed = prompt
        for _ in range(steps):
            outputs = self.feed(fed, mask)
            scores = outputs["logits"] if "logits" in outputs else next(iter(outputs.values()))
            behind = np.zeros(self.batch, np.int64)
            if mask is not None:
                seen = np.atleast_2d(np.asarray(mask)) != 0
                if not seen.any(axis=1).all():
                    raise ValueError("a row of the prompt is padding only: nothing says which token comes next")
                behind = np.argmax(seen[:, ::-1], axis=1)
            if behind.max() >= scores.shape[1]:
                raise ValueError("the model gives no scores of a shorter prompt's last token, because padding follows it")
            tokens: npt.NDArray[np.int64] = scores[np.arange(self.batch), -1 - behind].argmax(-1)[:, None]
            fed, mask = tokens, None
            for row, token in zip(made, tokens):
                row += token.tolist()
        return made
