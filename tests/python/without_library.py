"""kvopt.onnxruntime from the sources, sys.argv[1], without kvopt's library: the interpreter with ONNX Runtime may be another
release's."""
import importlib
import sys
import types

package = types.ModuleType("kvopt")
package.__path__ = [sys.argv[1] + "/kvopt"]
sys.modules["kvopt"] = package
decoder = importlib.import_module("kvopt.onnxruntime")
main = importlib.import_module("kvopt.onnxruntime.__main__").main
