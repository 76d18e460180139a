"""The C interface (kvopt/kvopt.h) through ctypes."""

from __future__ import annotations

import ctypes as c
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type

from ._types import OptionValue, Progress

if TYPE_CHECKING:
    from typing import Protocol

    class _Bar(Protocol):
        """The part of ``tqdm.tqdm`` that is used."""

        desc: str
        n: int

        def update(self, n: int) -> object: ...
        def close(self) -> object: ...

    _Callback = Callable[[str, int, int], Optional[bool]]

__all__ = ["KvoptError", "RefusedError", "CancelledError", "check", "library", "library_path", "options", "progress_table"]


class KvoptError(Exception):
    """A call failed.

    Attributes:
        code: A stable word: ``usage``, ``invalid``, ``unsupported``, ``io``, ``cancelled``, ``capacity``,
            ``internal``, or the reason code of a refusal.
        message: One sentence.
        file, node, op, value, hint: Where the failure is and what to do; empty if unknown.
        report: For a refused rewrite, the report of ``kvopt rewrite --format json`` as text; otherwise empty.
    """

    code: str = ""
    message: str = ""
    file: str = ""
    node: str = ""
    op: str = ""
    value: str = ""
    hint: str = ""
    report: str = ""

    def __init__(self, text: str, **fields: str) -> None:
        super().__init__(text)
        for name, value in fields.items():
            setattr(self, name, value)


class RefusedError(KvoptError):
    """A rewrite that kvopt cannot prove. ``reason`` is the reason code, such as ``no-window`` (docs/reasons.md)."""

    @property
    def reason(self) -> str:
        """The reason code, which is also ``code``."""
        return self.code


class CancelledError(KvoptError):
    """A progress callback returned True."""


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int32), ("rank", c.c_int32),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64))]


class Option(c.Structure):
    _fields_ = [("name", c.c_char_p), ("text", c.c_char_p)]


Report = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p, c.c_uint64, c.c_uint64)


class ProgressTable(c.Structure):
    _fields_ = [("size", c.c_size_t), ("report", Report), ("user", c.c_void_p)]


Read = c.CFUNCTYPE(c.c_int64, c.c_void_p, c.c_char_p, c.c_uint64, c.c_void_p, c.c_size_t)

_P, _OUT, _SIZE, _TEXT, _I64 = c.c_void_p, c.POINTER(c.c_void_p), c.c_size_t, c.c_char_p, c.c_int64
_OPTIONS = [c.POINTER(Option), _SIZE]
_PROGRESS = c.POINTER(ProgressTable)
_TENSORS = [c.POINTER(_TEXT), c.POINTER(Tensor), _SIZE]

# Result and arguments of every function that is used.
_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "version": (_TEXT, []),
    "abi_version": (c.c_uint32, []),
    "error_get_kind": (c.c_int, [_P]),
    **{f"error_{field}": (_TEXT, [_P])
       for field in ("code", "message", "file", "node", "op", "value", "hint", "report", "text")},
    "error_free": (None, [_P]),
    "bytes_data": (_P, [_P]),
    "bytes_size": (_SIZE, [_P]),
    "bytes_free": (None, [_P]),
    "model_open": (_P, [_TEXT, *_OPTIONS, _OUT]),
    "model_from_bytes": (_P, [_P, _SIZE, _TEXT, *_OPTIONS, _OUT]),
    "model_from_reader": (_P, [_P, _SIZE, Read, _P, *_OPTIONS, _OUT]),
    "model_free": (None, [_P]),
    **{name: (_P, [_P, *_OPTIONS, _PROGRESS, _OUT])
       for name in ("inspect", "explain", "rewrite", "add_cache", "make_dynamic")},
    "result_is_unchanged": (c.c_int, [_P]),
    "result_report": (_TEXT, [_P]),
    "result_manifest": (_TEXT, [_P]),
    "result_serialize": (_P, [_P, _OUT]),
    "result_model": (_P, [_P, _OUT]),
    "result_save": (_P, [_P, _TEXT, *_OPTIONS, _PROGRESS]),
    "result_free": (None, [_P]),
    "verify": (_P, [_P, _P, *_OPTIONS, _PROGRESS, c.POINTER(c.c_int), _OUT]),
    "check": (_P, [_P, _P, *_OPTIONS, _PROGRESS, c.POINTER(c.c_int), _OUT]),
    "diff": (_P, [_P, _P, *_OPTIONS, _PROGRESS, _OUT]),
    "session_create": (_P, [_P, _I64, *_OPTIONS, _OUT]),
    "session_free": (None, [_P]),
    "session_feed": (_P, [_P, c.POINTER(_I64), _I64]),
    "session_step": (_P, [_P, *_TENSORS, _I64]),
    "session_output_count": (_SIZE, [_P]),
    "session_output_name": (_TEXT, [_P, _SIZE]),
    "session_output_dlpack": (_P, [_P, _SIZE, _OUT]),
    "session_choose": (_P, [_P, _I64, *_OPTIONS, c.POINTER(_I64)]),
    "session_length": (_I64, [_P]),
    "session_capacity": (_I64, [_P]),
    "session_batch": (_I64, [_P]),
    "session_crop": (_P, [_P, _I64]),
    "session_shift": (_P, [_P, _I64, _I64]),
    "session_reset": (_P, [_P]),
    "session_fork": (_P, [_P, _OUT]),
    "session_reorder": (_P, [_P, c.POINTER(_I64), _SIZE]),
    "session_seed": (_P, [_P, *_TENSORS, _I64]),
    "session_save": (_P, [_P, _TEXT]),
    "session_load": (_P, [_P, _TEXT]),
    "session_cache_count": (_SIZE, [_P]),
    "session_cache_name": (_TEXT, [_P, _SIZE]),
    "session_cache_dlpack": (_P, [_P, _SIZE, _OUT]),
    "session_statistics": (_P, [_P, _OUT]),
}

_ABI_VERSION = 0
_OUT_OF_MEMORY, _CANCELLED, _REFUSED = 5, 6, 8  # kvopt_error_kind


def library_path() -> str:
    """Path of the shared library: ``$KVOPT_LIBRARY``, the one in this package, or the system's."""
    if os.environ.get("KVOPT_LIBRARY"):
        return os.environ["KVOPT_LIBRARY"]
    carried = os.path.join(os.path.dirname(__file__), "lib", "libkvopt.so.0")
    return carried if os.path.exists(carried) else "libkvopt.so.0"


class _Library:
    """The functions of the C interface, by their names without ``kvopt_``."""

    def __init__(self) -> None:
        loaded = c.CDLL(library_path())
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(loaded, "kvopt_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        if self.abi_version() != _ABI_VERSION:
            raise ImportError(f"{library_path()} has version {self.abi_version()} of the C interface, "
                              f"and this package needs {_ABI_VERSION}")

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Callable[..., Any]: ...


library = _Library()


def check(error: Optional[int]) -> None:
    """Raises the error of a C function; None does nothing."""
    if not error:
        return
    fields = {name: getattr(library, "error_" + name)(error).decode("utf-8", "replace")
              for name in ("code", "message", "file", "node", "op", "value", "hint", "report")}
    text = library.error_text(error).decode("utf-8", "replace")
    kind = library.error_get_kind(error)
    library.error_free(error)
    if kind == _OUT_OF_MEMORY:
        raise MemoryError(text)
    kinds = {_REFUSED: RefusedError, _CANCELLED: CancelledError}
    raise kinds.get(kind, KvoptError)(text, **fields)


def take_bytes(handle: c.c_void_p) -> bytes:
    """The contents of a kvopt_bytes, which is freed."""
    try:
        return c.string_at(library.bytes_data(handle), library.bytes_size(handle))
    finally:
        library.bytes_free(handle)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError("the value of an option is text, not bytes")
    return str(os.fspath(value)) if isinstance(value, os.PathLike) else str(value)


def _texts(value: OptionValue) -> List[str]:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview)):
        return [_text(part) for part in value]
    return [_text(value)]


def options(named: Mapping[str, OptionValue]) -> Tuple[c.Array[Option], int]:
    """Options by their names in Python, ``cache_dtype=…`` for ``--cache-dtype``, as arguments of a C function.

    None leaves an option out. A list gives an option several times.
    """
    pairs = [("--" + name.rstrip("_").replace("_", "-"), text)
             for name, value in named.items() if value is not None for text in _texts(value)]
    made = (Option * max(1, len(pairs)))(*[Option(name.encode(), text.encode()) for name, text in pairs])
    return made, len(pairs)


class progress_table:
    """A progress callback ``f(what, done, total) -> cancel`` for one call.

    ``True`` is a bar of tqdm where it is installed, and nothing otherwise. What the callback raises is raised by the
    call: use it as a context manager around the call, and pass ``table`` to the C function.
    """

    def __init__(self, callback: Progress) -> None:
        self.raised: Optional[BaseException] = None
        self.bar: Optional[_Bar] = None
        self.table: Optional[c._CArgObject] = None
        called = self._bar_callback() if callback is True else callback
        if called:
            self.report = Report(self._reporting(called))
            self.table = c.byref(ProgressTable(c.sizeof(ProgressTable), self.report, None))

    def _bar_callback(self) -> Optional[_Callback]:
        try:
            from tqdm import tqdm
        except ImportError:
            return None

        def show(what: str, done: int, total: int) -> bool:
            bar = self.bar
            if bar is None or bar.desc != what:
                self._close()
                fresh: _Bar = tqdm(total=total or None, desc=what, file=sys.stderr)
                fresh.desc = what
                bar = self.bar = fresh
            bar.update(done - bar.n)
            return False
        return show

    def _reporting(self, called: _Callback) -> Callable[[Optional[int], bytes, int, int], int]:
        def report(_user: Optional[int], what: bytes, done: int, total: int) -> int:
            try:
                return 1 if called(what.decode("utf-8", "replace"), done, total) else 0
            except BaseException as raised:  # ctypes cannot carry it through C
                self.raised = raised
                return 1
        return report

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.close()

    def __enter__(self) -> progress_table:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._close()
        if self.raised is not None and kind is CancelledError:
            raise self.raised from None
