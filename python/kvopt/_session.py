"""Decoding in kvopt's runtime."""

from __future__ import annotations

import ctypes as c
import json
import os
import warnings
from typing import Any, Dict, Iterator, List, Mapping, Optional

import numpy as np
import numpy.typing as npt

from ._arrays import from_kvopt, named_tensors
from ._models import Handle
from ._native import check, library, options, take_bytes
from ._operations import _source
from ._types import ArrayLike, DataFolder, ModelLike, OptionValue, StrPath

__all__ = ["KVCache", "Session"]


class KVCache(Mapping[str, "npt.NDArray[Any]"]):
    """The caches of a session: from the names of past inputs to arrays of their valid rows.

    An array has the axes of the model as it was exported, and is a view of the session's memory: its contents change
    with the next step. Caches in blocks are copied.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        pointer = session._pointer
        self._names = {library.session_cache_name(pointer, index).decode(): index
                       for index in range(library.session_cache_count(pointer))}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        made = c.c_void_p()
        check(library.session_cache_dlpack(self._session._pointer, self._names[name], c.byref(made)))
        return from_kvopt(made)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Session:
    """A batch of sequences with their caches.

    Args:
        model: A path, bytes, ``onnx.ModelProto``, ``onnx_ir.Model`` or a `Result`.
        batch: Number of sequences.
        folder: Folder of the model's external data, or bytes by location, if the model is not a path.
        capacity: Number of tokens that the caches have room for; None: they grow.
        threads: Number of threads; None: one for each core.
        named: Other options of ``kvopt run`` for sessions: ``mode``, ``folded_constants_limit``.

    Attributes:
        caches: Valid rows of the caches, a `KVCache`.

    >>> session = Session("models/llama_gqa-ts14-eager/model.onnx")
    >>> session.generate([1, 2, 3], 8)
    [[96, 65, 84, 156, 149, 151, 94, 76]]
    >>> session.length
    10
    """

    def __init__(self, model: ModelLike, batch: int = 1, *, folder: Optional[DataFolder] = None,
                 capacity: Optional[int] = None, threads: Optional[int] = None, **named: OptionValue) -> None:
        made = c.c_void_p()
        texts, count = options({"capacity": capacity, "threads": threads, **named})
        source = _source(model, folder)  # alive until the session exists
        check(library.session_create(source.pointer, batch, texts, count, c.byref(made)))
        self._adopt(made)
        remark = self.statistics.get("remark")
        if remark:
            warnings.warn(remark, stacklevel=2)

    def _adopt(self, pointer: c.c_void_p) -> None:
        self._handle, self._pointer = Handle(pointer, library.session_free), pointer
        self.caches = KVCache(self)

    def _outputs(self) -> Dict[str, npt.NDArray[Any]]:
        arrays = {}
        for index in range(library.session_output_count(self._pointer)):
            made = c.c_void_p()
            check(library.session_output_dlpack(self._pointer, index, c.byref(made)))
            arrays[library.session_output_name(self._pointer, index).decode()] = from_kvopt(made)
        return arrays

    def feed(self, tokens: npt.ArrayLike) -> Dict[str, npt.NDArray[Any]]:
        """Appends tokens, [batch, count] or [count] for a batch of one, and returns the outputs by their names.

        The outputs have the model's shapes, such as [batch, count, vocabulary] for logits. They are views of the step's
        memory, which stays theirs. bfloat16 is given as its bits, uint16.
        """
        self._append(tokens)
        return self._outputs()

    def _append(self, tokens: npt.ArrayLike) -> None:
        array = np.ascontiguousarray(np.atleast_2d(np.asarray(tokens, np.int64)))
        if array.ndim != 2 or array.shape[0] != self.batch:
            raise ValueError(f"tokens are [{self.batch}, count], not {list(array.shape)}")
        check(library.session_feed(self._pointer, array.ctypes.data_as(c.POINTER(c.c_int64)), array.shape[1]))

    def step(self, inputs: Mapping[str, ArrayLike], new_tokens: int) -> Dict[str, npt.NDArray[Any]]:
        """Appends ``new_tokens`` tokens to each sequence with inputs of the caller's own, and returns the outputs.

        ``inputs`` maps the names of inputs to arrays of the model's shapes, without caches and without lengths.
        Arrays are numpy's or any with ``__dlpack__`` in the CPU's memory. Nothing is copied.
        """
        arguments, kept = named_tensors(inputs)
        check(library.session_step(self._pointer, *arguments, new_tokens))
        del kept
        return self._outputs()

    def choose(self, row: int = 0, **sampling: OptionValue) -> int:
        """The next token of sequence ``row``: the most likely one, or one drawn with ``temperature``, ``top_k``, ``top_p``
        and ``seed``."""
        token = c.c_int64()
        texts, count = options(sampling)
        check(library.session_choose(self._pointer, row, texts, count, c.byref(token)))
        return token.value

    def generate(self, prompt: npt.ArrayLike, steps: int, **sampling: OptionValue) -> List[List[int]]:
        """Feeds a prompt, [batch, count] or [count], and generates ``steps`` tokens for each sequence, as lists."""
        made: List[List[int]] = [[] for _ in range(self.batch)]
        tokens = prompt
        for _ in range(steps):
            self._append(tokens)
            tokens = [[self.choose(row, **sampling)] for row in range(self.batch)]
            for row, token in zip(made, tokens):
                row += token
        return made

    @property
    def length(self) -> int:
        """Number of valid tokens of the longest sequence."""
        return int(library.session_length(self._pointer))

    @property
    def capacity(self) -> Optional[int]:
        """Number of tokens that the caches have room for; None if they grow with every step."""
        capacity: int = library.session_capacity(self._pointer)
        return None if capacity == 2**63 - 1 else capacity

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return int(library.session_batch(self._pointer))

    def crop(self, tokens: int) -> None:
        """Keeps the first ``tokens`` tokens of every sequence."""
        check(library.session_crop(self._pointer, tokens))

    def shift(self, kept: int, dropped: int) -> None:
        """Drops ``dropped`` tokens after the first ``kept`` and moves later ones forward."""
        check(library.session_shift(self._pointer, kept, dropped))

    def reset(self) -> None:
        """Drops all tokens."""
        check(library.session_reset(self._pointer))

    def fork(self) -> Session:
        """A session that continues from the same tokens, independently."""
        made = c.c_void_p()
        check(library.session_fork(self._pointer, c.byref(made)))
        forked = object.__new__(Session)
        forked._adopt(made)
        return forked

    def reorder(self, rows: npt.ArrayLike) -> None:
        """Makes sequence i what sequence ``rows[i]`` was, as beam search needs it. ``rows`` is [new batch]."""
        kept = np.ascontiguousarray(rows, np.int64)
        check(library.session_reorder(self._pointer, kept.ctypes.data_as(c.POINTER(c.c_int64)), kept.size))

    def seed(self, caches: Mapping[str, ArrayLike], tokens: int) -> None:
        """Replaces the contents of the caches by ``tokens`` tokens: arrays by the names of past inputs.

        An array has the axes of the model as it was exported, and ``tokens`` rows on the axis of the sequence.
        """
        arguments, kept = named_tensors(caches)
        check(library.session_seed(self._pointer, *arguments, tokens))
        del kept

    def save(self, path: StrPath) -> None:
        """Writes the valid rows of all caches to a file."""
        check(library.session_save(self._pointer, os.fsencode(path)))

    def load(self, path: StrPath) -> None:
        """Continues from a file that `save` wrote for the same model."""
        check(library.session_load(self._pointer, os.fsencode(path)))

    @property
    def statistics(self) -> Dict[str, Any]:
        """Counters of the session: ``steps``, ``length`` in tokens, ``cache_reallocations``, and numbers of bytes.

        ``cache_bytes`` are held now. ``cache_bytes_written``, ``cache_bytes_copied`` and ``cache_bytes_moved`` are sums over
        all steps, and ``temporary_peak_bytes`` is the most of one step. ``remark`` is there if what an input is fed may be
        wrong, which a session also warns of when it is made.
        """
        made = c.c_void_p()
        check(library.session_statistics(self._pointer, c.byref(made)))
        counters: Dict[str, Any] = json.loads(take_bytes(made))
        return counters
