"""Decodes greedily in ONNX Runtime with a model that `kvopt rewrite` wrote. Each cache is one buffer, which is bound as
its past and as its present: a step writes the new rows and copies nothing.

    python3 ort_decode.py MODEL.onnx 1,2,3 8 [--first MODEL.onnx]… [--input NAME=FILE.npy]…

The second argument is the prompt, the third the number of tokens to generate. Decoders of speech and translation also
read what an encoder computed. --first names a model that runs once before the first token, for example encoder.onnx,
and the decoder without a past of an export in three files; --input gives a tensor by its name.
"""
import json
import os
import sys

import numpy as np
import onnxruntime as ort

TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
         "tensor(int32)": np.int32, "tensor(bool)": np.bool_}


def open_model(path):
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def run_once(path, tensors):
    """Adds the outputs of a model to `tensors`, under the names that a decoder's inputs have."""
    session = open_model(path)
    feeds = {value.name: tensors[value.name] for value in session.get_inputs()}
    for value, tensor in zip(session.get_outputs(), session.run(None, feeds)):
        name = value.name.replace("present", "past_key_values", 1)
        tensors["encoder_hidden_states" if name == "last_hidden_state" else name] = tensor


class Decoder:
    def __init__(self, path, capacity, tensors):
        with open(path.removesuffix(".onnx") + ".kv.json") as file:
            self.manifest = json.load(file)
        if "first_step" in self.manifest:
            run_once(os.path.join(os.path.dirname(path), self.manifest["first_step"]), tensors)
        self.session = open_model(path)
        self.binding = self.session.io_binding()
        self.tensors, self.past = tensors, 0
        self.types = {value.name: TYPES[value.type] for value in self.session.get_inputs()}
        self.outputs = [value.name for value in self.session.get_outputs()]
        self.bind_caches(self.manifest["capacity"]["value"] or capacity)

    def bind_caches(self, capacity):
        self.buffers = []  # a binding does not keep its buffers alive
        for cache in self.manifest["caches"]:
            if cache["kind"] == "cross":
                continue
            if not cache["one_buffer"]:
                raise SystemExit(f"{cache['past']} is not one buffer: rewrite the model with --to ort")
            extents = [1 if isinstance(extent, str) else extent for extent in cache["shape"]]
            if isinstance(cache["shape"][cache["sequence_axis"]], str):  # rings have rows of their own
                extents[cache["sequence_axis"]] = capacity
            buffer = ort.OrtValue.ortvalue_from_numpy(np.zeros(extents, cache["dtype"]))
            self.binding.bind_ortvalue_input(cache["past"], buffer)
            self.binding.bind_ortvalue_output(cache["present"], buffer)
            self.buffers.append(buffer)
            self.outputs.remove(cache["present"])

    def described(self, entry, tokens):
        """Contents of an input that the manifest describes; None if only the model's documentation does."""
        new, total = len(tokens), self.past + len(tokens)
        words = {"batch": 1, "new": new, "past": self.past, "total": total}
        shape = [words.get(extent, extent) for extent in entry["shape"]]
        columns = shape[-1] if shape else 1
        first = total - columns if entry["feed"].endswith("_at_end") else self.past if "new" in entry["shape"][-1:] else 0
        keys = first + np.arange(columns)
        has_queries = len(shape) >= 3 and shape[-2] == new
        last = self.past + np.arange(new)[:, None] if has_queries else total - 1
        sees = (keys >= 0) & (keys <= last)
        if entry["feed"].startswith("additive_mask"):
            return np.broadcast_to(np.where(sees, 0, np.finfo(entry["dtype"]).min), shape)
        values = {"token_ids": tokens, "position_ids": self.past + np.arange(columns) % new, "visible_keys": sees,
                  "hidden_keys": ~sees}
        value = values.get(entry["feed"].removesuffix("_at_end"))
        return value if value is None else np.broadcast_to(value, shape)

    def step(self, tokens):
        """Feeds new tokens and returns the scores of the last one."""
        new, total = len(tokens), self.past + len(tokens)
        positions = list(range(self.past, total))
        feeds = {"input_ids": [tokens], "decoder_input_ids": [tokens], "attention_mask": [[1] * total],
                 "position_ids": [positions], "cache_position": positions}
        described = {("token_ids", "batch", "new"): [tokens], ("visible_keys", "batch", "total"): [[1] * total],
                     ("position_ids", "batch", "new"): [positions], ("position_ids", "new"): positions,
                     ("batch_rows", "batch"): [0]}
        for entry in self.manifest.get("inputs", []):  # what the manifest says counts more than a name
            feeds.pop(entry["input"], None)
            if (entry["feed"], *entry["shape"]) in described:
                feeds[entry["input"]] = described[entry["feed"], *entry["shape"]]
        feeds.update(self.tensors)
        numbers = {"past_length": self.past, "total_length": total, "new_length": new,
                   "has_past": self.past > 0, "no_past": self.past == 0}
        for length in self.manifest["lengths"]:
            words = length["feed"].replace("_per_batch", "").removesuffix("_minus_one")
            number = numbers[words] - length["feed"].endswith("_minus_one")
            feeds[length["input"]] = np.full([1] * len(length["shape"]), number)
        for entry in self.manifest.get("inputs", []):
            value = self.described(entry, tokens)
            if entry["input"] not in self.tensors and value is not None:
                feeds[entry["input"]] = value
        bound = {cache["past"] for cache in self.manifest["caches"] if cache["kind"] != "cross"}
        for name in self.types.keys() - bound:
            if name not in feeds:
                raise SystemExit(f"the model reads '{name}': give it by --input {name}=FILE.npy, or --first MODEL.onnx")
            self.binding.bind_cpu_input(name, np.array(feeds[name], self.types[name]))
        for name in self.outputs:
            self.binding.bind_output(name)  # again in each step, for the extents change
        self.session.run_with_iobinding(self.binding)
        self.past = total
        scores = [value.numpy() for value in self.binding.get_outputs()[-len(self.outputs):]]
        return scores[self.outputs.index("logits") if "logits" in self.outputs else 0][0, -1]


def main(arguments):
    path, prompt, count = arguments[:3]
    tensors, options = {}, list(zip(arguments[3::2], arguments[4::2]))
    for option, value in sorted(options, key=lambda pair: pair[0] != "--input"):
        if option == "--first":
            run_once(value, tensors)
        else:
            name, file = value.split("=", 1)
            tensors[name] = np.load(file)
    tokens = [int(token) for token in prompt.split(",")]
    if min(tokens) < 0:
        raise SystemExit(f"there is no token {min(tokens)}")
    decoder = Decoder(path, len(tokens) + int(count), tensors)
    generated = []
    for _ in range(int(count)):
        limit = decoder.manifest.get("step_limit", len(tokens))
        for first in range(0, len(tokens), limit):
            scores = decoder.step(tokens[first:first + limit])
        tokens = [int(scores.argmax())]
        generated += tokens
    print(",".join(map(str, generated)))


if __name__ == "__main__":
    main(sys.argv[1:])
