"""kvopt's kernels inside ONNX Runtime."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, List, Literal, Union

if TYPE_CHECKING:
    import onnxruntime


def get_library_path() -> str:
    """Absolute path of the library that ONNX Runtime loads: ``$KVOPT_ONNXRUNTIME_LIBRARY``, or the one in this package.

    The same file is an execution provider, from ONNX Runtime 1.23 on, and a library of custom operators, from 1.16 on.
    """
    path = os.environ.get("KVOPT_ONNXRUNTIME_LIBRARY") or os.path.join(
        os.path.dirname(os.path.dirname(__file__)), "lib", "libkvopt_onnxruntime.so")
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
