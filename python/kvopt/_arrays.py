"""Arrays of numpy and of other libraries, as tensors of the C interface and back. Nothing is copied."""

from __future__ import annotations

import ctypes as c
from typing import Any, Dict, List, Mapping, Tuple, cast

import numpy as np
import numpy.typing as npt

from ._native import Tensor
from ._types import ArrayLike, SupportsDLPack

# TensorProto.DataType of ONNX.
_DTYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9,
           "float16": 10, "float64": 11, "uint32": 12, "uint64": 13}
_BFLOAT16 = 16


class _DLDataType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class _DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32),
                ("dtype", _DLDataType), ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)),
                ("byte_offset", c.c_uint64)]


class _DLManagedTensor(c.Structure):
    pass


_Deleter = c.CFUNCTYPE(None, c.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = [("dl_tensor", _DLTensor), ("manager_ctx", c.c_void_p), ("deleter", _Deleter)]

_CPU = 1
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}

_get_pointer = c.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]

class _Held:
    """Memory of a DLPack tensor, through numpy's array interface, until the array goes."""

    def __init__(self, handle: c.c_void_p, dtype: str) -> None:
        self.managed = c.cast(handle, c.POINTER(_DLManagedTensor))
        tensor = self.managed.contents.dl_tensor
        width = np.dtype(dtype).itemsize
        self.__array_interface__: Dict[str, Any] = {
            "version": 3, "typestr": np.dtype(dtype).str, "data": (tensor.data or 0, False),
            "shape": tuple(tensor.shape[axis] for axis in range(tensor.ndim)),
            "strides": tuple(tensor.strides[axis] * width for axis in range(tensor.ndim))}

    def __del__(self) -> None:
        self.managed.contents.deleter(self.managed)


def from_kvopt(handle: c.c_void_p) -> npt.NDArray[Any]:
    """A numpy array over a DLPack tensor that kvopt made. bfloat16 is given as its bits, uint16."""
    tensor = c.cast(handle, c.POINTER(_DLManagedTensor)).contents.dl_tensor
    kind, bits = _CODES[tensor.dtype.code], tensor.dtype.bits
    dtype = {"bool": "bool", "bfloat": "uint16"}.get(kind, f"{kind}{bits}")
    return np.asarray(_Held(handle, dtype))


def _of_numpy(array: npt.NDArray[Any]) -> Tuple[Tensor, object]:
    if array.dtype.name not in _DTYPES or not array.dtype.isnative:
        raise TypeError(f"arrays of {array.dtype} have no tensor form")
    width = array.dtype.itemsize
    if any(stride < 0 or stride % width for stride in array.strides):
        array = np.ascontiguousarray(array)
    rank = array.ndim
    shape = (c.c_int64 * rank)(*array.shape)
    strides = (c.c_int64 * rank)(*[stride // width for stride in array.strides])
    tensor = Tensor(array.ctypes.data, _DTYPES[array.dtype.name], rank, shape, strides)
    return tensor, (array, shape, strides)


def _of_dlpack(array: SupportsDLPack) -> Tuple[Tensor, object]:
    if array.__dlpack_device__()[0] != _CPU:
        raise TypeError("the array is not in the memory of the CPU")
    capsule = array.__dlpack__()
    held = c.cast(_get_pointer(capsule, b"dltensor"), c.POINTER(_DLManagedTensor)).contents.dl_tensor
    kind, bits = _CODES.get(held.dtype.code, "?"), held.dtype.bits
    dtype = _BFLOAT16 if kind == "bfloat" else _DTYPES.get("bool" if kind == "bool" else f"{kind}{bits}")
    if dtype is None or held.dtype.lanes != 1:
        raise TypeError("the array's elements have no tensor form")
    return Tensor((held.data or 0) + held.byte_offset, dtype, held.ndim, held.shape, held.strides), capsule


def to_kvopt(array: ArrayLike) -> Tuple[Tensor, object]:
    """A borrowed tensor over an array, and what must be kept alive for it.

    ``array`` is a numpy array, a number or list, or an array of any library with ``__dlpack__``.
    """
    if isinstance(array, np.ndarray) or not hasattr(array, "__dlpack__"):
        return _of_numpy(np.asarray(array))
    return _of_dlpack(cast(SupportsDLPack, array))


def named_tensors(
        arrays: Mapping[str, ArrayLike]) -> Tuple[Tuple[c.Array[c.c_char_p], c.Array[Tensor], int], List[object]]:
    """A mapping from names to arrays as arguments of a C function, and what must be kept alive for them."""
    made = [(name.encode(), *to_kvopt(array)) for name, array in arrays.items()]
    count = len(made)
    names = (c.c_char_p * max(1, count))(*[name for name, _, _ in made])
    tensors = (Tensor * max(1, count))(*[tensor for _, tensor, _ in made])
    return (names, tensors, count), [kept for _, _, kept in made]
