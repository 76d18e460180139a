"""Tensors for the inputs of a step, and the steps that a model takes, as its manifest describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple, Type, Union

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]
    Tokens = npt.NDArray[np.int64]

#: An extent: a number, or the name of one that may change.
Extent = Union[int, str, None]

_MASKS = ("visible_keys", "hidden_keys", "additive_mask")
_FEEDS = ("token_ids", "position_ids", "batch_rows", "segment_ids", "constant", *_MASKS)
#: The lowest finite number of floating-point types, by their size in bytes.
_LOWEST = {2: -65504.0, 4: float(np.finfo(np.float32).min), 8: float(np.finfo(np.float64).min)}
#: Feeds of inputs that exporters commonly give decoders, by name and rank.
_DOCUMENTED: Dict[Tuple[str, int], Tuple[str, Sequence[Extent]]] = {
    ("input_ids", 2): ("token_ids", ("batch", "new")),
    ("decoder_input_ids", 2): ("token_ids", ("batch", "new")),
    ("attention_mask", 2): ("visible_keys", ("batch", "total")),
    ("position_ids", 2): ("position_ids", ("batch", "new")),
    ("position_ids", 1): ("position_ids", ("new",)),
    ("cache_position", 1): ("position_ids", ("new",))}


def length_value(feed: str, past: int, new: int) -> int:
    """The number that a length input takes at a step that adds ``new`` tokens after ``past`` earlier ones."""
    word = feed.replace("_per_batch", "")
    minus = word.endswith("_minus_one")
    values = {"past_length": past, "total_length": past + new, "new_length": new, "has_past": int(past > 0),
              "no_past": int(past == 0)}
    word = word[:-len("_minus_one")] if minus else word
    if word not in values:
        raise ValueError(f"the manifest feeds '{feed}', which this decoder does not know")
    return values[word] - minus


class StepInputs:
    """The inputs of a model other than its caches.

    Args:
        manifest: How to drive the model.
        types: Element types of the model's inputs.
        shapes: Declared extents of the model's inputs.
    """

    def __init__(self, manifest: Mapping[str, Any], types: Mapping[str, Type[np.generic]],
                 shapes: Mapping[str, Sequence[Extent]]) -> None:
        self.manifest, self._types, self._shapes = manifest, types, shapes
        self._lengths: Dict[str, Mapping[str, Any]] = {length["input"]: length for length in manifest["lengths"]}
        self._fed: Dict[str, Tuple[str, Sequence[Extent]]] = {}
        for name, shape in shapes.items():
            if (name, len(shape)) in _DOCUMENTED:
                feed, extents = _DOCUMENTED[name, len(shape)]
                # Masks and ids of fixed extents have these.
                self._fed[name] = feed, [given if isinstance(given, int) and axis > 0 else extent
                                         for axis, (extent, given) in enumerate(zip(extents, shape))]
        for entry in manifest.get("inputs", ()):
            self._fed[entry["input"]] = entry["feed"], entry["shape"]
        self._numbers = {entry["input"]: entry["numbers"] for entry in manifest.get("inputs", ()) if "numbers" in entry}
        if manifest.get("reorder"):
            self._fed[manifest["reorder"]] = "batch_rows", ("batch",)

    def made(self, name: str) -> bool:
        """Whether the input follows from the tokens and the mask."""
        return name in self._lengths or self._fed.get(name, ("any", ()))[0] in _FEEDS

    def hides_padding(self) -> bool:
        """Whether an input can hide positions of single batch rows."""
        return any(feed in _MASKS and len(shape) >= 2 and shape[0] == "batch" for feed, shape in self._fed.values())

    def largest_token(self) -> int:
        """The largest number that fits in the element types of token ids."""
        types = [np.dtype(self._types[name]) for name, (feed, _) in self._fed.items() if feed == "token_ids"]
        return min((2 ** (8 * dtype.itemsize - 1) - 1 for dtype in types if dtype.kind == "i"), default=2**63 - 1)

    def step_tokens(self, wanted: int, batch: int, past: int) -> int:
        """Number of tokens of the next step, of ``wanted`` ones that are left."""
        for feed, shape in self._fed.values():
            fixed = shape[-1] if feed == "token_ids" and len(shape) == 2 else None
            if isinstance(fixed, int):
                if wanted % fixed != 0:
                    raise ValueError(f"the model takes {fixed} tokens a step, and {wanted} are no multiple of that")
                return fixed
        after_past = self.manifest.get("chunk_batch")
        if past > 0 and after_past is not None and batch > after_past:
            return 1
        return min(wanted, self.manifest.get("step_limit") or wanted)

    def check_padding(self, mask: Mask, past: int) -> None:
        """Raises an error if the model does not take the padding of ``mask``, which is [batch, new tokens]."""
        if mask.all():
            return
        if self.manifest.get("unpadded"):
            raise ValueError("no row may be padded: the model was written for batches without padding")
        if not self.hides_padding():
            raise ValueError("the model has no mask of each batch row that could hide padding")
        if self.manifest.get("padding") != "right":
            return
        if past > 0:
            raise ValueError("the model takes padding in the prompt only, on the right: it counts tokens by its mask")
        if (mask[:, 1:] > mask[:, :-1]).any() or not mask[:, 0].all():
            raise ValueError("the model takes padding on the right of a prompt only: it counts tokens by its mask")
        if self.step_tokens(mask.shape[1], mask.shape[0], past) < mask.shape[1]:
            raise ValueError("a padded prompt must be one step, which is longer than the model takes")

    def tensor(self, name: str, tokens: Tokens, seen: Mask, past: int) -> npt.NDArray[Any]:
        """The tensor of an input that is `made`. ``seen``, [batch, all tokens], is False for padding."""
        dtype, (batch, new) = self._types[name], tokens.shape
        if name in self._lengths:
            length = self._lengths[name]
            shape = [extent if isinstance(extent, int) else batch for extent in length["shape"]]
            return np.full(shape, length_value(length["feed"], past, new), dtype)
        feed, words = self._fed[name]
        extents = self._extents(name, words, batch, new, past)
        if feed == "batch_rows":
            return np.broadcast_to(np.arange(extents[-1]), extents).astype(dtype)
        if feed == "segment_ids":
            return np.zeros(extents, dtype)  # a text is one segment
        if feed == "constant":
            return np.resize(self._numbers[name], extents).astype(dtype)
        if feed in _MASKS:
            sees = self._sees(words, extents, seen, new, past)
            if feed == "additive_mask":
                floats: npt.NDArray[np.float64] = np.where(sees, 0.0, _LOWEST[np.dtype(dtype).itemsize])
                return floats.astype(dtype)
            return (sees if feed == "visible_keys" else ~sees).astype(dtype)
        along = next((axis for axis, word in enumerate(words) if word == "new"), len(extents) - 1)
        has_batch = along != 0 and _has_batch(words, batch)
        if not extents or words[along] == "batch" or (feed == "token_ids" and not has_batch and batch != 1):
            raise ValueError(f"this decoder cannot feed '{name}' {list(words)} to a batch of {batch}")
        values = (tokens if feed == "token_ids" else self._positions(seen, past) if has_batch else
                  np.arange(past, past + new)[None])
        shape = [1] * len(extents)
        shape[along] = new
        if has_batch:
            shape[0] = batch
        return np.broadcast_to(values.reshape(shape), extents).astype(dtype)

    def _extents(self, name: str, words: Sequence[Extent], batch: int, new: int, past: int) -> List[int]:
        known: Dict[Extent, int] = {"batch": batch, "new": new, "past": past, "total": past + new}
        extents = []
        for word in words:
            if not isinstance(word, int) and word not in known:
                raise ValueError(f"the manifest does not say how long '{word}' of the input '{name}' is")
            extents.append(word if isinstance(word, int) else known[word])
        return extents

    @staticmethod
    def _positions(seen: Mask, past: int) -> npt.NDArray[np.int64]:
        """Numbers of visible tokens before the new ones; padding has 0."""
        counts: npt.NDArray[np.int64] = np.where(seen, np.cumsum(seen, axis=1) - 1, 0)[:, past:]
        return counts

    @staticmethod
    def _sees(words: Sequence[Extent], extents: Sequence[int], seen: Mask, new: int, past: int) -> Mask:
        """Which keys the batch rows and, where the mask has an axis of queries, the new tokens see."""
        rank = len(extents)
        has_queries = rank >= 2 and (words[-2] == "new" or (rank >= 3 and extents[-2] == new))
        has_batch = rank >= 2 and not (has_queries and rank == 2) and _has_batch(words, seen.shape[0])
        first = past if words[-1] == "new" else 0
        if words[-1] != "new" and extents[-1] < past + new:
            raise ValueError(f"the mask has {extents[-1]} columns, and there are {past + new} tokens")
        keys = np.arange(first, first + extents[-1])
        visible = np.zeros((seen.shape[0], extents[-1]), np.bool_)
        visible[:, keys < past + new] = seen[:, keys[keys < past + new]]
        shape = [1] * (rank - 1) + [extents[-1]]
        if has_batch:
            shape[0] = seen.shape[0]
        sees = visible[:seen.shape[0] if has_batch else 1].reshape(shape)
        if has_queries:
            queries = np.arange(past, past + extents[-2])
            sees = sees & (keys[None] <= queries[:, None]).reshape([1] * (rank - 2) + [extents[-2], extents[-1]])
        result: Mask = np.broadcast_to(sees, extents)
        return result


def _has_batch(words: Sequence[Extent], batch: int) -> bool:
    """Whether the first axis is that of batch rows. A file may have their number instead of the name."""
    return words[0] == "batch" or (words[0] == batch and "batch" not in words)


def checked_tokens(tokens: npt.ArrayLike, mask: Optional[npt.ArrayLike], batch: int,
                   limit: int) -> Tuple[Tokens, Mask]:
    """Tokens and their mask as [batch, count]; an error for what is no token."""
    ids = np.atleast_2d(np.asarray(tokens))
    if ids.ndim != 2 or ids.shape[0] != batch or ids.shape[1] == 0:
        raise ValueError(f"tokens are [{batch}, count], not {list(ids.shape)}")
    if ids.dtype.kind not in "iu":
        raise TypeError(f"tokens are integers, not {ids.dtype}")
    if (ids < 0).any() or (ids > limit).any():
        raise ValueError(f"there is no token {ids[(ids < 0) | (ids > limit)][0]}")
    seen = np.ones(ids.shape, np.bool_) if mask is None else np.atleast_2d(np.asarray(mask)) != 0
    if seen.shape != ids.shape:
        raise ValueError("the mask has another shape than the tokens")
    return ids.astype(np.int64), seen
