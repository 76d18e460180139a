"""The types of the public interface, for a type checker and at run time.

``cd python && mypy`` checks this file together with the package, with the types of other libraries from stubs/. A line that must be
refused ends with ``type: ignore``, which is an error itself if the line is accepted. The main program holds the types against what
the package returns: python3 types_test.py MODEL.onnx (KVOPT_LIBRARY, PYTHONPATH).
"""
from __future__ import annotations

import pathlib
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Dict, List, Optional

import kvopt
import kvopt.onnxruntime
import numpy as np
import numpy.typing as npt
from typing_extensions import Literal, assert_type

if TYPE_CHECKING:
    import onnx
    import onnx_ir
    import onnxruntime


class Foreign:
    """An array of another library: it has the DLPack protocol, with an argument that callers may omit."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, stream: Optional[int] = None) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self.array.__dlpack_device__()


def paths(model: pathlib.Path, folder: pathlib.Path) -> None:
    result = kvopt.rewrite(model, to="kvopt", verify="off")
    assert_type(result, "kvopt.Result[Optional[str]]")
    assert_type(result.model, Optional[str])
    assert result.model is None and result.path is None
    written = kvopt.rewrite(str(model), folder / "written.onnx", to="kvopt", verify="off")
    assert_type(written, "kvopt.Result[str]")
    assert_type(written.model, str)
    assert isinstance(written.model, str)
    assert_type(written.path, Optional[str])
    assert_type(result.save(folder / "saved.onnx", progress=True, external_data="copy"), str)
    assert isinstance(result.model, str)
    # A result that is rewritten again is a model without a file.
    again = kvopt.rewrite(written, to="kvopt", verify="off")
    assert_type(again, "kvopt.Result[Optional[str]]")
    assert again.model is None


def models_in_memory(data: bytes) -> None:
    result = kvopt.rewrite(data, to="kvopt", verify="off")
    assert_type(result, "kvopt.Result[bytes]")
    for given in bytearray(data), memoryview(data):
        assert_type(kvopt.rewrite(given, to="kvopt", verify="off"), "kvopt.Result[bytes]")
        assert isinstance(kvopt.rewrite(given, to="kvopt", verify="off").model, bytes)
    assert_type(kvopt.rewrite(result, to="kvopt", verify="off"), "kvopt.Result[bytes]")
    assert_type(result.model, bytes)
    assert isinstance(result.model, bytes) and isinstance(result.serialize(), bytes)
    assert_type(result.manifest, Dict[str, Any])
    assert_type(result.report, Dict[str, Any])
    assert_type(result.unchanged, bool)
    assert isinstance(result.manifest, dict) and isinstance(result.report, dict) and result.unchanged is False


def models_of_onnx(model: onnx.ModelProto) -> None:
    result = kvopt.rewrite(model, to="kvopt", verify="off")
    assert_type(result, "kvopt.Result[onnx.ModelProto]")
    assert_type(result.model, "onnx.ModelProto")
    assert isinstance(result.model, type(model))
    assert_type(kvopt.rewrite(result, to="kvopt", verify="off").model, "onnx.ModelProto")


def models_of_onnx_ir(model: onnx_ir.Model) -> None:
    assert_type(kvopt.rewrite(model).model, "onnx_ir.Model")
    assert_type(kvopt.add_cache(model, "cached.onnx").model, "onnx_ir.Model")
    assert_type(kvopt.make_dynamic(model, folder="weights").model, "onnx_ir.Model")
    assert_type(kvopt.make_dynamic(model, folder={"weights": b""}).model, "onnx_ir.Model")
    model.is_a_model()  # type: ignore[attr-defined]  # the stub is read: onnx_ir.Model is not Any


def models_of_any_form(model: kvopt.ModelLike, progress: kvopt.Progress) -> None:
    assert_type(kvopt.inspect(model, progress=progress), Dict[str, Any])
    kvopt.rewrite(model, progress=progress)
    kvopt.Session(model)


def answers(model: pathlib.Path) -> None:
    seen: List[str] = []

    def progress(what: str, done: int, total: int) -> bool:
        seen.append(f"{what}: {done} of {total}")
        return False

    result = kvopt.rewrite(model, to="kvopt", verify="off", progress=progress)
    for answer in (kvopt.inspect(model, progress=False), kvopt.explain(model, layer=0, progress=lambda what, done, total: None),
                   kvopt.verify(model, result, prompt=np.int64(3), steps=1, atol=1e-3), kvopt.diff(model, result),
                   kvopt.check(model, result, allow_tested=True)):
        assert_type(answer, Dict[str, Any])
        assert isinstance(answer, dict)
    # Some option may be given several times, and one that is None is left out.
    kvopt.explain(model, disable=("raise-spelled-attention", "remove-noop-cast"), rule=None)


def errors(model: pathlib.Path) -> None:
    try:
        kvopt.rewrite(model, to="kvopt", cache="ring")
        raise AssertionError("a ring needs a window")
    except kvopt.RefusedError as error:
        assert_type(error.reason, str)
        for field in (error.code, error.message, error.file, error.node, error.op, error.value, error.hint, error.report):
            assert_type(field, str)
            assert isinstance(field, str)


def sessions(model: pathlib.Path, folder: pathlib.Path) -> None:
    session = kvopt.Session(model, 1, threads=1)
    outputs = session.feed([1, 2, 3])
    assert_type(outputs, Dict[str, "npt.NDArray[Any]"])
    assert all(isinstance(array, np.ndarray) for array in outputs.values())
    assert_type(session.choose(temperature=0.5, top_k=3, seed=1), int)
    assert isinstance(session.choose(), int)
    assert_type(session.generate(np.array([[4]]), 2), List[List[int]])
    inputs: Dict[str, kvopt.ArrayLike] = {"input_ids": Foreign(np.array([[1]])), "position_ids": [[session.length]],
                                          "attention_mask": np.ones((1, session.length + 1), np.int64)}
    assert_type(session.step(inputs, 1), Dict[str, "npt.NDArray[Any]"])
    assert_type(session.length, int)
    assert_type(session.batch, int)
    assert_type(session.capacity, Optional[int])
    assert (type(session.length), type(session.batch), session.capacity) == (int, int, None)
    assert type(kvopt.Session(kvopt.rewrite(model, to="kvopt", verify="off"), capacity=16).capacity) is int
    assert_type(session.fork(), kvopt.Session)
    assert_type(session.statistics, Dict[str, Any])
    assert_type(session.caches, kvopt.KVCache)
    for name, rows in session.caches.items():
        assert_type(name, str)
        assert_type(rows, "npt.NDArray[Any]")
        assert isinstance(name, str) and isinstance(rows, np.ndarray)
    kvopt.Session(model).seed(session.caches, session.length)
    session.save(folder / "cache")
    session.load(str(folder / "cache"))
    session.reorder(np.array([0]))


def decoders(session: onnxruntime.InferenceSession, options: onnxruntime.SessionOptions) -> None:
    decoder = kvopt.onnxruntime.Decoder(session, "fused.kv.json", batch=2, inputs={"encoded": np.zeros((2, 3))})
    kvopt.onnxruntime.Decoder(session, kvopt.rewrite("decoder.onnx"))
    assert_type(decoder.session, "onnxruntime.InferenceSession")
    assert_type(decoder.feed([[1, 2], [3, 4]], [[0, 1], [1, 1]]), Dict[str, "npt.NDArray[Any]"])
    assert_type(decoder.generate(np.ones((2, 3), np.int64), 4), List[List[int]])
    assert_type(decoder.batch, int)
    assert_type(decoder.length, int)
    assert_type(decoder.capacity, int)
    assert_type(kvopt.onnxruntime.register(options, off=1), Literal["provider", "operators"])
    assert_type(kvopt.onnxruntime.get_library_path(), str)


def refused_by_a_type_checker(session: kvopt.Session, decoder: kvopt.onnxruntime.Decoder) -> None:
    kvopt.rewrite(7)  # type: ignore[call-overload]
    kvopt.rewrite("decoder.onnx", 7)  # type: ignore[call-overload]
    kvopt.rewrite("decoder.onnx", to={"ort"})  # type: ignore[call-overload]
    kvopt.rewrite("decoder.onnx").model.upper()  # type: ignore[union-attr]
    kvopt.rewrite(b"").model.upper().encode()  # type: ignore[attr-defined]
    kvopt.inspect(None)  # type: ignore[arg-type]
    kvopt.inspect("decoder.onnx", progress=lambda what: True)  # type: ignore[arg-type, misc]
    kvopt.verify("decoder.onnx", "fused.onnx", steps={})  # type: ignore[arg-type]
    session.step({"input_ids": object()}, 1)  # type: ignore[dict-item]
    session.crop("1")  # type: ignore[arg-type]
    session.length = 3  # type: ignore[misc]
    session.caches["past"] = 3  # type: ignore[index]
    decoder.crop(None)  # type: ignore[arg-type]


def main() -> None:
    model = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        paths(model, folder)
        models_in_memory(model.read_bytes())
        answers(model)
        errors(model)
        sessions(model, folder)
    try:
        import onnx
    except ImportError:
        return
    models_of_onnx(onnx.load(str(model)))


if __name__ == "__main__":
    main()
