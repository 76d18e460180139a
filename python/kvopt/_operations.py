"""Inspecting, rewriting and comparing models."""

from __future__ import annotations

import ctypes as c
import json
import os
from typing import (TYPE_CHECKING, Any, Callable, Dict, Generic, List, Mapping, Optional, Protocol, TypeVar, Union, cast,
                    overload)

from ._models import Handle, Source, serialized
from ._native import check as raise_failure, library, options, progress_table, take_bytes
from ._types import DataFolder, ModelLike, OptionValue, Progress, StrPath

if TYPE_CHECKING:
    import onnx
    import onnx_ir

__all__ = ["Result", "add_cache", "check", "diff", "explain", "inspect", "make_dynamic", "rewrite", "verify"]

#: Type of a result's model.
_Form = TypeVar("_Form", covariant=True)


class Result(Generic[_Form]):
    """A rewritten model. The parameter is the type of `model`: ``Result[bytes]`` for a model that was given as bytes.

    Attributes:
        manifest: How to drive its caches, as a dict (docs/manifest.md).
        report: What changed and how it was verified, as a dict: ``kvopt rewrite --format json``.
        unchanged: Whether the model had the form already.
        path: The file that the model was written to, or None.
    """

    manifest: Dict[str, Any]
    report: Dict[str, Any]
    unchanged: bool
    path: Optional[str]

    def __init__(self, pointer: c.c_void_p, source: Source) -> None:
        self._handle, self._source = Handle(pointer, library.result_free), source
        self.manifest = json.loads(library.result_manifest(pointer))
        self.report = json.loads(library.result_report(pointer))
        self.unchanged = bool(library.result_is_unchanged(pointer))
        self.path = None

    @property
    def model(self) -> _Form:
        """The model in the form in which it was given; for a path, the path it was written to, or None."""
        if self._source.path is not None:
            return cast(_Form, self.path)
        return cast(_Form, self._source.in_given_form(serialized(self._handle.pointer)))

    @property
    def pointer(self) -> c.c_void_p:
        """The model's C object, for sessions and comparisons."""
        if not hasattr(self, "_model"):
            made = c.c_void_p()
            raise_failure(library.result_model(self._handle.pointer, c.byref(made)))
            self._model = Handle(made, library.model_free)
        return self._model.pointer

    def serialize(self) -> bytes:
        """The model as bytes of a ModelProto, with external data named but not loaded."""
        return serialized(self._handle.pointer)

    def save(self, path: StrPath, progress: Progress = None, **named: OptionValue) -> str:
        """Writes the model to ``path`` and its manifest beside it, and returns the path.

        Options are those of ``kvopt rewrite`` that name files: ``external_data``, ``manifest``, ``genai_config``.
        """
        texts, count = options(named)
        with progress_table(progress) as table:
            raise_failure(library.result_save(self._handle.pointer, os.fsencode(path), texts, count, table.table))
        self.path = os.fspath(path)
        return self.path

    def __repr__(self) -> str:
        return f"<kvopt.Result {self.manifest.get('target', '')}{' unchanged' if self.unchanged else ''}>"


def _source(model: Union[ModelLike, Source], folder: Optional[DataFolder]) -> Union[Source, Result[Any]]:
    return model if isinstance(model, (Result, Source)) else Source(model, folder)


def _json(function: Callable[..., Any], models: List[Union[Source, Result[Any], None]], progress: Progress,
          named: Mapping[str, OptionValue], *outputs: Any) -> Dict[str, Any]:
    made = c.c_void_p()
    texts, count = options(named)
    with progress_table(progress) as table:
        raise_failure(function(*[model and model.pointer for model in models], texts, count, table.table, *outputs, c.byref(made)))
    report: Dict[str, Any] = json.loads(take_bytes(made))
    return report


def inspect(model: ModelLike, *, folder: Optional[DataFolder] = None, progress: Progress = None,
            **named: OptionValue) -> Dict[str, Any]:
    """Facts about every attention layer and cache, as a dict: ``kvopt inspect --format json``.

    >>> facts = inspect("models/llama_gqa-ts14-eager/model.onnx")
    >>> [site["status"] for site in facts["sites"]]
    ['matched', 'matched']
    """
    return _json(library.inspect, [_source(model, folder)], progress, named)


def explain(model: ModelLike, *, folder: Optional[DataFolder] = None, progress: Progress = None,
            **named: OptionValue) -> Dict[str, Any]:
    """How each attention layer was matched, or why it was missed, as a dict: ``kvopt explain --format json``."""
    return _json(library.explain, [_source(model, folder)], progress, named)


class _Rewriting(Protocol):
    """A function that rewrites a model, by how the model is given: its result has a model of the same type."""

    @overload
    def __call__(self, model: Union[StrPath, Result[Optional[str]]], output: StrPath, *,
                 folder: Optional[DataFolder] = ..., progress: Progress = ..., **named: OptionValue) -> Result[str]: ...
    @overload
    def __call__(self, model: Union[StrPath, Result[Optional[str]]], output: Optional[StrPath] = ..., *,
                 folder: Optional[DataFolder] = ..., progress: Progress = ...,
                 **named: OptionValue) -> Result[Optional[str]]: ...
    @overload
    def __call__(self, model: Union[bytes, bytearray, memoryview, Result[bytes]], output: Optional[StrPath] = ..., *,
                 folder: Optional[DataFolder] = ..., progress: Progress = ..., **named: OptionValue) -> Result[bytes]: ...
    @overload
    def __call__(self, model: Union[onnx.ModelProto, Result[onnx.ModelProto]], output: Optional[StrPath] = ..., *,
                 folder: Optional[DataFolder] = ..., progress: Progress = ...,
                 **named: OptionValue) -> Result[onnx.ModelProto]: ...
    @overload
    def __call__(self, model: Union[onnx_ir.Model, Result[onnx_ir.Model]], output: Optional[StrPath] = ..., *,
                 folder: Optional[DataFolder] = ..., progress: Progress = ...,
                 **named: OptionValue) -> Result[onnx_ir.Model]: ...


def _typed_by_form(function: Callable[..., Result[Any]]) -> _Rewriting:
    return cast(_Rewriting, function)


def _rewritten(function: Callable[..., Any], model: ModelLike, output: Optional[StrPath], folder: Optional[DataFolder],
               progress: Progress, named: Dict[str, OptionValue]) -> Result[Any]:
    source = _source(model, folder)
    files = {name: named.pop(name) for name in ("external_data", "manifest", "genai_config") if name in named}
    texts, count = options(named)
    made = c.c_void_p()
    with progress_table(progress) as table:
        raise_failure(function(source.pointer, texts, count, table.table, c.byref(made)))
    result: Result[Any] = Result(made, source if isinstance(source, Source) else source._source)
    if output is not None:
        result.save(output, None, **files)
    elif files:
        raise TypeError(f"{', '.join(files)} needs an output path")
    return result


@_typed_by_form
def rewrite(model: ModelLike, output: Optional[StrPath] = None, *, folder: Optional[DataFolder] = None,
            progress: Progress = None, **named: OptionValue) -> Result[Any]:
    """Rewrites a model and returns a `Result`; writes it to the path ``output`` if there is one.

    ``model`` is a path, bytes, an ``onnx.ModelProto``, an ``onnx_ir.Model`` or a `Result`; ``folder`` holds its external
    data. The result's model has the same type. It is a path or None where a path was given.
    Options are those of ``kvopt rewrite``, with underscores: ``to="ort"``, ``rows="int8"``, ``verify="full"``.
    Raises `RefusedError` for a model that cannot be rewritten or does not compute the same.

    >>> result = rewrite("models/llama_gqa-ts14-eager/model.onnx", to="kvopt")
    >>> [cache["role"] for cache in result.manifest["caches"]]
    ['key', 'value', 'key', 'value']
    """
    return _rewritten(library.rewrite, model, output, folder, progress, named)


@_typed_by_form
def add_cache(model: ModelLike, output: Optional[StrPath] = None, *, folder: Optional[DataFolder] = None,
              progress: Progress = None, **named: OptionValue) -> Result[Any]:
    """Gives caches to a decoder that was exported without them. Arguments as of `rewrite`."""
    return _rewritten(library.add_cache, model, output, folder, progress, named)


@_typed_by_form
def make_dynamic(model: ModelLike, output: Optional[StrPath] = None, *, folder: Optional[DataFolder] = None,
                 progress: Progress = None, **named: OptionValue) -> Result[Any]:
    """Gives symbols to the batch, sequence and past extents that an export fixed. Arguments as of `rewrite`."""
    return _rewritten(library.make_dynamic, model, output, folder, progress, named)


def verify(first: ModelLike, second: Optional[ModelLike] = None, *, folder: Optional[DataFolder] = None,
           progress: Progress = None, **named: OptionValue) -> Dict[str, Any]:
    """Runs two models step by step and compares them; returns the report as a dict with ``equal``.

    ``reference`` is a path of recorded steps, or of data sets in ONNX's format, in place of a second model.
    Options are those of ``kvopt verify``: ``prompt``, ``steps``, ``batch``, ``pad``, ``atol``, ``rtol``, ``seed``,
    ``text_file``, …
    """
    equal = c.c_int()
    models = [_source(first, folder), None if second is None else _source(second, folder)]
    report = _json(library.verify, models, progress, named, c.byref(equal))
    report["equal"] = bool(equal.value)
    return report


def check(before: ModelLike, after: ModelLike, *, folder: Optional[DataFolder] = None, progress: Progress = None,
          **named: OptionValue) -> Dict[str, Any]:
    """Checks that two models compute the same, without running them.

    Returns the report of ``kvopt check --format json`` as a dict, with ``equal``: whether every output is proved. With
    ``allow_tested=True``, outputs that are equal in all steps of the scope count, too. With ``counterexample=FOLDER``, a
    new or empty folder receives the inputs of the smallest step in which an output differs and the outputs of ``before``;
    the report has ``replay``, and ``verify(after, reference=FOLDER)`` repeats the comparison in floats.
    """
    equal = c.c_int()
    report = _json(library.check, [_source(before, folder), _source(after, folder)], progress, named, c.byref(equal))
    report["equal"] = bool(equal.value)
    return report


def diff(first: ModelLike, second: ModelLike, *, folder: Optional[DataFolder] = None, progress: Progress = None,
         **named: OptionValue) -> Dict[str, Any]:
    """What changed between two models, as a dict: ``kvopt diff --format json``.

    >>> path = "models/llama_gqa-ts14-eager/model.onnx"
    >>> changes = diff(path, rewrite(path, to="kvopt"))
    >>> changes["same"]
    False
    """
    return _json(library.diff, [_source(first, folder), _source(second, folder)], progress, named)
