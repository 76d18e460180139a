"""Inspecting, rewriting and comparing models."""

import ctypes as c
import json
import os

from ._models import Handle, Source, serialized
from ._native import check, library, options, progress_table, take_bytes

__all__ = ["Result", "add_cache", "diff", "explain", "inspect", "make_dynamic", "rewrite", "verify"]


def _source(model, folder):
    if isinstance(model, Result):
        return model
    return model if isinstance(model, Source) else Source(model, folder)


class Result:
    """A rewritten model.

    Attributes:
        manifest: How to drive its caches, as a dict (docs/manifest.md).
        report: What changed and how it was verified, as a dict: ``kvopt rewrite --format json``.
        unchanged: Whether the model had the form already.
        path: The file that the model was written to, or None.
    """

    def __init__(self, pointer, source):
        self._handle, self._source = Handle(pointer, library.result_free), source
        self.manifest = json.loads(library.result_manifest(pointer))
        self.report = json.loads(library.result_report(pointer))
        self.unchanged = bool(library.result_is_unchanged(pointer))
        self.path = None

    @property
    def model(self):
        """The model in the form in which it was given; for a path, the path it was written to, or None."""
        if self._source.path is not None:
            return self.path
        return self._source.in_given_form(serialized(self._handle.pointer))

    @property
    def pointer(self):
        """The model's C object, for sessions and comparisons."""
        if not hasattr(self, "_model"):
            made = c.c_void_p()
            check(library.result_model(self._handle.pointer, c.byref(made)))
            self._model = Handle(made, library.model_free)
        return self._model.pointer

    def serialize(self):
        """The model as bytes of a ModelProto, with external data named but not loaded."""
        return serialized(self._handle.pointer)

    def save(self, path, progress=None, **named):
        """Writes the model to ``path`` and its manifest beside it, and returns the path.

        Options are those of ``kvopt rewrite`` that name files: ``external_data``, ``manifest``, ``genai_config``.
        """
        texts, count = options(named)
        with progress_table(progress) as table:
            check(library.result_save(self._handle.pointer, os.fsencode(path), texts, count, table.table))
        self.path = os.fspath(path)
        return self.path

    def __repr__(self):
        return f"<kvopt.Result {self.manifest.get('target', '')}{' unchanged' if self.unchanged else ''}>"


def _json(function, models, progress, named, *outputs):
    made = c.c_void_p()
    texts, count = options(named)
    with progress_table(progress) as table:
        check(function(*[model and model.pointer for model in models], texts, count, table.table, *outputs, c.byref(made)))
    return json.loads(take_bytes(made))


def inspect(model, *, folder=None, progress=None, **named):
    """Facts about every attention layer and cache, as a dict: ``kvopt inspect --format json``.

    >>> facts = inspect("models/llama_gqa-ts14-eager/model.onnx")
    >>> [site["status"] for site in facts["sites"]]
    ['matched', 'matched']
    """
    return _json(library.inspect, [_source(model, folder)], progress, named)


def explain(model, *, folder=None, progress=None, **named):
    """How each attention layer was matched, or why it was missed, as a dict: ``kvopt explain --format json``."""
    return _json(library.explain, [_source(model, folder)], progress, named)


def _rewritten(function, model, output, folder, progress, named):
    source = _source(model, folder)
    files = {name: named.pop(name) for name in ("external_data", "manifest", "genai_config") if name in named}
    texts, count = options(named)
    made = c.c_void_p()
    with progress_table(progress) as table:
        check(function(source.pointer, texts, count, table.table, c.byref(made)))
    result = Result(made, source if isinstance(source, Source) else source._source)
    if output is not None:
        result.save(output, **files)
    elif files:
        raise TypeError(f"{', '.join(files)} needs an output path")
    return result


def rewrite(model, output=None, *, folder=None, progress=None, **named):
    """Rewrites a model and returns a `Result`; writes it to the path ``output`` if there is one.

    ``model`` is a path, bytes, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; ``folder`` holds its external data.
    Options are those of ``kvopt rewrite``, with underscores: ``to="ort"``, ``rows="int8"``, ``verify="full"``.
    Raises `RefusedError` for a model that cannot be rewritten or does not compute the same.

    >>> result = rewrite("models/llama_gqa-ts14-eager/model.onnx", to="kvopt")
    >>> [cache["role"] for cache in result.manifest["caches"]]
    ['key', 'value', 'key', 'value']
    """
    return _rewritten(library.rewrite, model, output, folder, progress, named)


def add_cache(model, output=None, *, folder=None, progress=None, **named):
    """Gives caches to a decoder that was exported without them. Arguments as of `rewrite`."""
    return _rewritten(library.add_cache, model, output, folder, progress, named)


def make_dynamic(model, output=None, *, folder=None, progress=None, **named):
    """Gives symbols to the batch, sequence and past extents that an export fixed. Arguments as of `rewrite`."""
    return _rewritten(library.make_dynamic, model, output, folder, progress, named)


def verify(first, second=None, *, folder=None, progress=None, **named):
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


def diff(first, second, *, folder=None, progress=None, **named):
    """What changed between two models, as a dict: ``kvopt diff --format json``.

    >>> path = "models/llama_gqa-ts14-eager/model.onnx"
    >>> changes = diff(path, rewrite(path, to="kvopt"))
    >>> changes["same"]
    False
    """
    return _json(library.diff, [_source(first, folder), _source(second, folder)], progress, named)
