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

import json
import os

import numpy as np

__all__ = ["Decoder", "get_ep_name", "get_library_path", "register"]

_DTYPES = {"float": np.float32, "float16": np.float16, "double": np.float64, "int64": np.int64, "int32": np.int32,
           "int8": np.int8, "uint8": np.uint8, "bool": np.bool_}


def get_library_path():
    """Absolute path of the library that ONNX Runtime loads: ``$KVOPT_ONNXRUNTIME_LIBRARY``, or the one in this package.

    The same file is an execution provider, from ONNX Runtime 1.23 on, and a library of custom operators, from 1.16 on.
    """
    path = os.environ.get("KVOPT_ONNXRUNTIME_LIBRARY") or os.path.join(
        os.path.dirname(__file__), "lib", "libkvopt_onnxruntime.so")
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path} does not exist: this package was built without the library for ONNX Runtime; set "
                                "KVOPT_ONNXRUNTIME_LIBRARY to its path")
    return os.path.abspath(path)


def get_ep_name():
    """Name of the execution provider, which is also a part of the names of its options."""
    return "kvopt"


def register(session_options, **options):
    """Makes sessions with these options compute attention with kvopt's kernels, where the result is the same.

    The model needs no rewrite: the provider claims GroupQueryAttention and kvopt's own operators. Before ONNX Runtime 1.23,
    which has no such providers, kvopt's own operators are registered alone.

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

    def devices():
        return [device for device in onnxruntime.get_ep_devices() if device.ep_name == get_ep_name()]

    if not devices():
        onnxruntime.register_execution_provider_library(get_ep_name(), get_library_path())
    session_options.add_provider_for_devices(devices()[:1], {name: str(value) for name, value in options.items()})
    return "provider"


def _dtype(text):
    name = text[len("tensor("):-1]
    if name not in _DTYPES:
        raise TypeError(f"numpy has no arrays of {text}")
    return _DTYPES[name]


def _manifest(session, given):
    if given is None:
        given = session.get_modelmeta().custom_metadata_map.get("kvopt.manifest")
        if given is None:
            raise ValueError("the model has no manifest: rewrite it with kvopt, or give the manifest")
        return json.loads(given)
    if isinstance(given, (str, os.PathLike)):
        with open(given) as file:
            return json.load(file)
    return getattr(given, "manifest", given)


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
    """

    def __init__(self, session, manifest=None, *, batch=1, capacity=2048, inputs=None):
        self.session, self.manifest = session, _manifest(session, manifest)
        for key in ("variants", "tiles"):
            if self.manifest.get(key):
                raise ValueError(f"a model in {key} is driven by kvopt.Session")
        self.constant = dict(inputs or {})
        self.capacity = self.manifest["capacity"]["value"] or capacity
        self._types = {value.name: _dtype(value.type) for value in session.get_inputs()}
        self._outputs = [value.name for value in session.get_outputs()]
        self._caches = [cache for cache in self.manifest["caches"] if cache.get("kind") != "cross"]
        for cache in self._caches:
            if cache.get("pool") or cache["policy"] == "block":
                raise ValueError("caches in blocks are driven by kvopt.Session")
        self._grows = any(not cache["one_buffer"] for cache in self._caches)
        self.batch = batch
        self.reset()

    # ---- Caches

    def _extents(self, cache):
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

    def reset(self):
        """Drops all tokens."""
        self._mask = np.zeros((self.batch, 0), np.int64)
        self._buffers = {cache["past"]: np.zeros(self._extents(cache), self._types[cache["past"]])
                         for cache in self._caches}
        self._grown = {}
        self._binding = None

    @property
    def length(self):
        """Number of tokens in the caches, padding included."""
        return self._mask.shape[1]

    def crop(self, tokens):
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

    def reorder(self, rows):
        """Makes sequence i what sequence ``rows[i]`` was; rows may be repeated or left out."""
        rows = np.asarray(rows, np.int64)
        for cache in self._caches:
            axis = next((axis for axis, extent in enumerate(cache["shape"])
                         if isinstance(extent, str) and axis != cache["sequence_axis"]), None)
            if axis is None:
                raise ValueError(f"{cache['past']} has no axis for the batch")
            self._replace(cache, np.take(self._rows(cache), rows, axis))
        self._mask, self.batch = self._mask[rows], len(rows)

    def _rows(self, cache):
        name = cache["past"]
        return self._grown[name].numpy() if name in self._grown else self._buffers[name]

    def _replace(self, cache, rows):
        self._grown.pop(cache["past"], None)
        self._binding = None
        self._buffers[cache["past"]] = np.ascontiguousarray(rows)

    # ---- Steps

    def _numbers(self, feed, new):
        past, total = self.length, self.length + new
        word = feed.replace("_per_batch", "")
        minus = word.endswith("_minus_one")
        values = {"past_length": past, "total_length": total, "new_length": new, "has_past": past > 0,
                  "no_past": past == 0}
        word = word[:-len("_minus_one")] if minus else word
        if word not in values:
            raise ValueError(f"the manifest feeds '{feed}', which this decoder does not know")
        return values[word] - minus

    def _feeds(self, tokens, mask):
        new, seen = tokens.shape[1], np.concatenate([self._mask, mask], axis=1)
        positions = np.maximum(np.cumsum(seen, axis=1) - 1, 0)[:, self.length:]
        feeds = {"input_ids": tokens, "decoder_input_ids": tokens, "attention_mask": seen, "position_ids": positions,
                 "cache_position": np.arange(self.length, self.length + new)}
        for length in self.manifest["lengths"]:
            extents = [extent if isinstance(extent, int) else self.batch for extent in length["shape"]]
            feeds[length["input"]] = np.full(extents, self._numbers(length["feed"], new))
        feeds.update(self.constant)
        return feeds, seen

    def _bind_caches(self):
        """Binds the caches: buffers once, and what grows anew in each step."""
        if self._binding and not self._grows:
            return
        # Outputs of a step are in the memory of its binding, which must stay until the next step is over.
        self._former, self._binding = self._binding, self.session.io_binding()
        for cache in self._caches:
            name = cache["past"]
            if name in self._grown:
                self._binding.bind_ortvalue_input(name, self._grown[name])
                continue
            buffer = self._buffers[name]
            self._binding.bind_input(name, "cpu", 0, buffer.dtype.type, buffer.shape, buffer.ctypes.data)
            if cache["one_buffer"]:
                self._binding.bind_output(cache["present"], "cpu", 0, buffer.dtype.type, buffer.shape,
                                          buffer.ctypes.data)

    def feed(self, tokens, mask=None):
        """Appends tokens, [batch, count] or [count], and returns the outputs by their names as numpy arrays.

        ``mask`` is 0 where a token is padding, of the same shape; padding is on the left of a prompt.
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
        self._bind_caches()
        pasts = {cache["past"] for cache in self._caches}
        kept = []  # a binding does not keep its arrays alive
        for name, dtype in self._types.items():
            if name in pasts:
                continue
            if name not in feeds:
                raise ValueError(f"the model reads '{name}': give it in inputs={{'{name}': …}}")
            kept.append(np.ascontiguousarray(feeds[name], dtype))
            self._binding.bind_input(name, "cpu", 0, dtype, kept[-1].shape, kept[-1].ctypes.data)
        in_one = {cache["present"] for cache in self._caches if cache["one_buffer"]}
        for name in self._outputs:
            if name not in in_one:
                self._binding.bind_output(name)
        self.session.run_with_iobinding(self._binding)
        made = dict(zip([*(cache["present"] for cache in self._caches if cache["one_buffer"]),
                         *(name for name in self._outputs if name not in in_one)], self._binding.get_outputs()))
        for cache in self._caches:
            if not cache["one_buffer"]:
                self._grown[cache["past"]] = made[cache["present"]]
        self._mask = seen
        presents = {cache["present"] for cache in self._caches}
        return {name: made[name].numpy() for name in self._outputs if name not in presents}

    def generate(self, prompt, steps, mask=None):
        """Feeds a prompt and generates ``steps`` tokens for each sequence greedily, as lists."""
        made, tokens = [[] for _ in range(self.batch)], prompt
        for _ in range(steps):
            outputs = self.feed(tokens, mask)
            scores = outputs["logits"] if "logits" in outputs else next(iter(outputs.values()))
            tokens, mask = scores[:, -1].argmax(-1)[:, None], None
            for row, token in zip(made, tokens):
                row += token.tolist()
        return made


def main(arguments=None):
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
