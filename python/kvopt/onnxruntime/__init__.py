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

from ._decoder import Decoder
from ._provider import get_ep_name, get_library_path, register

__all__ = ["Decoder", "get_ep_name", "get_library_path", "register"]
