# The part of onnx_ir that kvopt uses: Debian has no such package.
from . import serde as serde

class Model: ...
