"""The types of arguments that several functions take."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Protocol, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from ._operations import Result

__all__ = ["ArrayLike", "DataFolder", "ModelLike", "OptionValue", "Progress", "StrPath", "SupportsDLPack"]

# Aliases are evaluated at run time, where Python 3.9 has no `|`. Names of optional modules stay text.

#: Path of a file or folder.
StrPath = Union[str, "os.PathLike[str]"]

#: External data of a model that is not a path: the folder that has it, or bytes by location. kvopt copies the bytes into
#: the model, which with them must have less than 2 GiB.
DataFolder = Union[StrPath, Mapping[str, Union[bytes, bytearray, memoryview]]]

#: A model: the path of a file, bytes of a serialized ModelProto, or an object of onnx, of onnx_ir or of this package.
ModelLike = Union[StrPath, bytes, bytearray, memoryview, "onnx.ModelProto", "onnx_ir.Model", "Result[Any]"]

_Word = Union[str, bool, int, float, "np.integer[Any]", "np.floating[Any]", "os.PathLike[str]"]

#: Value of an option of the program. None leaves the option out, and a sequence gives it several times.
OptionValue = Union[_Word, Sequence[_Word], None]

#: ``True`` shows a bar of tqdm where it is installed. A function receives the name of the work, and how many units of
#: how many are complete; the second number is 0 if it is not known. It cancels the call by returning ``True``.
Progress = Union[bool, Callable[[str, int, int], Optional[bool]], None]


class SupportsDLPack(Protocol):
    """An array of any library that exports its memory by the DLPack protocol, in the memory of the CPU."""

    def __dlpack__(self) -> object:
        """A capsule with a ``DLManagedTensor``."""

    def __dlpack_device__(self) -> Tuple[Any, int]:
        """Type and number of the device; type 1 is the memory of the CPU."""


#: An array of any shape: numpy's, numbers and nested lists of them, or an array of another library.
ArrayLike = Union[npt.ArrayLike, SupportsDLPack]
