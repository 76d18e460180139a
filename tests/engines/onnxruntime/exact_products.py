"""exact_products.py MODEL RESULT: writes RESULT where products of MODEL round their activations, without that.

Exits with 1 where python3-onnx is missing and the model has such products.
"""
import sys

with open(sys.argv[1], "rb") as file:
    if b"accuracy_level" not in file.read():
        sys.exit(0)
try:
    import onnx
except ImportError:
    sys.exit(1)

model = onnx.load(sys.argv[1])
rounding = [attribute for node in model.graph.node if node.op_type == "MatMulNBits"
            for attribute in node.attribute if attribute.name == "accuracy_level" and attribute.i == 4]
for attribute in rounding:
    attribute.i = 0
if rounding:
    onnx.save(model, sys.argv[2])
