"""kvopt rewrites ONNX decoders so that their key/value caches are not copied, and proves that nothing changed.

    import kvopt
    result = kvopt.rewrite("decoder.onnx", "fused.onnx")            # for ONNX Runtime
    print(kvopt.verify("decoder.onnx", "fused.onnx")["equal"])
    print(kvopt.Session("fused.onnx").generate([1, 2, 3], 16))      # in kvopt's runtime

`kvopt.onnxruntime` drives rewritten models in ONNX Runtime.
"""

from ._native import CancelledError, KvoptError, RefusedError, library
from ._native import library_path as get_library_path
from ._operations import (Result, add_cache, check, diff, explain, inspect, make_dynamic, rewrite,
                          verify)
from ._session import KVCache, Session
from ._types import ArrayLike, DataFolder, ModelLike, OptionValue, Progress, SupportsDLPack

__version__: str = library.version().decode()
__all__ = ["ArrayLike", "CancelledError", "DataFolder", "KVCache", "KvoptError", "ModelLike", "OptionValue",
           "Progress", "RefusedError", "Result", "Session", "SupportsDLPack", "add_cache", "check", "diff",
           "explain", "get_library_path", "inspect", "make_dynamic", "rewrite", "verify"]
