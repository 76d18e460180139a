"""Models in the forms that Python programs have them in."""

import ctypes as c
import os

from ._native import check, library, options, take_bytes


class Handle:
    """A C object that is freed with this one."""

    def __init__(self, pointer, free):
        self.pointer, self.free = pointer, free

    def __del__(self):
        self.free(self.pointer)


def _open_path(path, named):
    made = c.c_void_p()
    texts, count = options(named)
    check(library.model_open(os.fsencode(path), texts, count, c.byref(made)))
    return Handle(made, library.model_free)


def _open_bytes(data, folder, named):
    made = c.c_void_p()
    texts, count = options(named)
    check(library.model_from_bytes(data, len(data), os.fsencode(folder) if folder else None, texts, count,
                                   c.byref(made)))
    return Handle(made, library.model_free)


def _is_ir(model):
    module = type(model).__module__.split(".")[0]
    return module == "onnx_ir" and type(model).__name__ == "Model"


class Source:
    """A model with how it was given.

    ``model`` is a path, bytes of a serialized ModelProto, an ``onnx.ModelProto`` or an ``onnx_ir.Model``. External data
    of all but paths is in ``folder``. Weights in external data are named, never loaded.
    """

    def __init__(self, model, folder=None, **named):
        self.folder = os.fspath(folder) if folder is not None else None
        self.given, self.path = model, None
        if isinstance(model, (str, os.PathLike)):
            self.path = os.fspath(model)
            self.handle = _open_path(self.path, named)
        elif isinstance(model, (bytes, bytearray, memoryview)):
            self.handle = _open_bytes(bytes(model), self.folder, named)
        elif hasattr(model, "SerializeToString"):
            self.handle = _open_bytes(model.SerializeToString(), self.folder, named)
        elif _is_ir(model):
            import onnx_ir
            self.handle = _open_bytes(onnx_ir.serde.serialize_model(model).SerializeToString(), self.folder, named)
        else:
            raise TypeError(f"a model is a path, bytes, onnx.ModelProto or onnx_ir.Model, not {type(model).__name__}")

    @property
    def pointer(self):
        return self.handle.pointer

    def in_given_form(self, data):
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


def serialized(result):
    made = c.c_void_p()
    check(library.result_serialize(result, c.byref(made)))
    return take_bytes(made)
