"""Models in the forms that Python programs have them in."""

from __future__ import annotations

import ctypes as c
import os
from typing import TYPE_CHECKING, Any, Callable, List, Mapping, Optional, Union

from ._native import Read, check, library, options, take_bytes
from ._types import DataFolder, OptionValue, StrPath

if TYPE_CHECKING:
    import onnx
    import onnx_ir


class Handle:
    """A C object that is freed with this one."""

    def __init__(self, pointer: c.c_void_p, free: Callable[[c.c_void_p], object]) -> None:
        self.pointer, self.free = pointer, free

    def __del__(self) -> None:
        self.free(self.pointer)


def _open_path(path: str, named: Mapping[str, OptionValue]) -> Handle:
    made = c.c_void_p()
    texts, count = options(named)
    check(library.model_open(os.fsencode(path), texts, count, c.byref(made)))
    return Handle(made, library.model_free)


def _open_with_data(data: bytes, files: Mapping[str, Union[bytes, bytearray, memoryview]],
                    named: Mapping[str, OptionValue]) -> c.c_void_p:
    """Opens a model with external data by location. Exceptions of the mapping are raised again."""
    thrown: List[Exception] = []

    def read(_user: object, location: bytes, offset: int, buffer: int, size: int) -> int:
        try:
            part = memoryview(files[os.fsdecode(location)]).cast("B")[offset:offset + size]
            c.memmove(buffer, part.tobytes(), len(part))
        except KeyError:
            return -1
        except Exception as error:  # pylint: disable=broad-except
            thrown.append(error)
            return -1
        return len(part)

    made = c.c_void_p()
    texts, count = options(named)
    error = library.model_from_reader(data, len(data), Read(read), None, texts, count, c.byref(made))
    if thrown:
        library.error_free(error)
        raise thrown[0]
    check(error)
    return made


def _open_bytes(data: bytes, folder: Optional[DataFolder], named: Mapping[str, OptionValue]) -> Handle:
    if folder is not None and not isinstance(folder, (str, os.PathLike)):
        return Handle(_open_with_data(data, folder, named), library.model_free)
    made = c.c_void_p()
    texts, count = options(named)
    check(library.model_from_bytes(data, len(data), os.fsencode(folder) if folder else None, texts, count,
                                   c.byref(made)))
    return Handle(made, library.model_free)


def _is_ir(model: object) -> bool:
    module = type(model).__module__.split(".")[0]
    return module == "onnx_ir" and type(model).__name__ == "Model"


class Source:
    """A model with how it was given.

    ``model`` is a path, bytes of a serialized ModelProto, an ``onnx.ModelProto`` or an ``onnx_ir.Model``. External data
    of all but paths is in ``folder``, a path or bytes by location. Weights in a folder are named, never loaded.
    """

    def __init__(self, model: Union[StrPath, bytes, bytearray, memoryview, onnx.ModelProto, onnx_ir.Model],
                 folder: Optional[DataFolder] = None, **named: OptionValue) -> None:
        self.given: Any = model
        self.path: Optional[str] = None
        if isinstance(model, (str, os.PathLike)):
            self.path = os.fspath(model)
            self.handle = _open_path(self.path, named)
        elif isinstance(model, (bytes, bytearray, memoryview)):
            self.handle = _open_bytes(bytes(model), folder, named)
        elif hasattr(model, "SerializeToString"):
            self.handle = _open_bytes(model.SerializeToString(), folder, named)
        elif _is_ir(model):
            import onnx_ir
            self.handle = _open_bytes(onnx_ir.serde.serialize_model(model).SerializeToString(), folder, named)
        else:
            raise TypeError(f"a model is a path, bytes, onnx.ModelProto or onnx_ir.Model, not {type(model).__name__}")

    @property
    def pointer(self) -> c.c_void_p:
        """The model's C object."""
        return self.handle.pointer

    def in_given_form(self, data: bytes) -> Any:
        """A serialized model in the form that this one was given in; None for a path."""
        if self.path is not None:
            return None
        if isinstance(self.given, (bytes, bytearray, memoryview)):
            return data
        if _is_ir(self.given):
            import onnx
            import onnx_ir
            return onnx_ir.serde.deserialize_model(onnx.ModelProto.FromString(data))
        return type(self.given).FromString(data)


def serialized(result: c.c_void_p) -> bytes:
    """The model of a kvopt_result as bytes of a ModelProto."""
    made = c.c_void_p()
    check(library.result_serialize(result, c.byref(made)))
    return take_bytes(made)
