"""Decodes in ONNX Runtime with a model that `kvopt rewrite --to ort-gqa` wrote. One buffer for each cache is bound
as its past and as its present, so that a step writes the new rows and copies nothing.

    python3 examples/ort_decode.py fused.onnx 1,2,3 8      the prompt, and how many tokens to generate
"""
import json
import sys

import numpy as np
import onnxruntime as ort

path, prompt, count = sys.argv[1], [int(token) for token in sys.argv[2].split(",")], int(sys.argv[3])
with open(path.removesuffix(".onnx") + ".kv.json") as file:
    manifest = json.load(file)
session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
inputs = {value.name for value in session.get_inputs()}
logits = session.get_outputs()[0].name
binding = session.io_binding()
capacity = len(prompt) + count

for cache in manifest["caches"]:
    extents = list(cache["shape"])
    extents[0], extents[cache["sequence_axis"]] = 1, capacity
    buffer = ort.OrtValue.ortvalue_from_numpy(np.zeros(extents, cache["dtype"]))
    binding.bind_ortvalue_input(cache["past"], buffer)
    binding.bind_ortvalue_output(cache["present"], buffer)

generated, step, past = [], prompt, 0
while len(generated) < count:
    total = past + len(step)
    feeds = {"input_ids": [step], "attention_mask": [[1] * total], "position_ids": [list(range(past, total))]}
    for length in manifest["lengths"]:
        feeds[length["input"]] = [{"past_length": past, "total_length": total}[length["feed"]]]
    for name in inputs & feeds.keys():
        binding.bind_cpu_input(name, np.array(feeds[name], np.int64))
    binding.bind_output(logits)  # bound last, and again in each step, for its extents change
    session.run_with_iobinding(binding)
    step = [int(binding.get_outputs()[-1].numpy()[0, -1].argmax())]
    generated += step
    past = total
print(",".join(map(str, generated)))
