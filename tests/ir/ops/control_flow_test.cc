// Shape rules of If, Loop and Scan.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(ControlFlowShapes, IfGivesWhatBothBranchesAgreeOn) {
  expectShapes({
      {16, "bool c, float[B, 4] x", "",
       "y = If <then_branch = t () => (a) { a = Relu(x) }, else_branch = e () => (b) { b = Tanh(x) "
       "}>(c)",
       "float[B, 4]"},
      {16, "bool c, float[B, 4] x, float[B, 5] z", "",
       "y = If <then_branch = t () => (a) { a = Relu(x) }, else_branch = e () => (b) { b = Relu(z) "
       "}>(c)",
       "float[B, ?]"},
      {16, "bool c, float[B, 4] x, float[B] z", "",
       "y = If <then_branch = t () => (a) { a = Relu(x) }, else_branch = e () => (b) { b = Relu(z) "
       "}>(c)",
       "float"},
      {16, "bool c, float[B, 4] x, float[?, 4] z", "",
       "y = If <then_branch = t () => (a) { a = Relu(x) }, else_branch = e () => (b) { b = Relu(z) "
       "}>(c)",
       "float[?, 4]"},
      {16, "bool c, float[B] x, int32[B] z", "",
       "y = If <then_branch = t () => (a) { a = Identity(x) }, else_branch = e () => (b) { b = "
       "Identity(z) }>(c)",
       "undefined[B]"},
      {16, "bool c, float[B, 4] x, float[B, 5] z", "",
       "y = If <then_branch = t () => (a) { a = Shape(x) }, else_branch = e () => (b) { b = "
       "Shape(z) }>(c)",
       "int64[2] {B, ?}"},
      {16, "bool c, float[B, 4] x", "",
       "y, z = If <then_branch = t () => (a) { a = Relu(x) }, else_branch = e () => (b) { b = "
       "Relu(x) }>(c)",
       "error: a branch has fewer outputs than the node has results"},
      {16, "bool c, float[B, 4] x", "", "y = If <then_branch = t () => (a) { a = Relu(x) }>(c)",
       "error: a branch is missing"},
      {16, "bool c, float[3] x, float[4] z", "",
       "y = If <then_branch = t () => (a) { a = Add(x, z) }, else_branch = e () => (b) { b = "
       "Relu(x) }>(c)",
       "error: operand 1 of type float[4] does not broadcast: 3 and 4"},
  });
}

TEST(ControlFlowShapes, IfWithAKnownConditionGivesWhatOneBranchGives) {
  expectShapes({
      {16, "float[B, 4] x, float[B] z", "bool c = {1}",
       "y = If <then_branch = t () => (a) { a = Relu(x) }, else_branch = e () => (b) { b = Relu(z) "
       "}>(c)",
       "float[B, 4]"},
      {16, "float[B, 4] x, float[B] z", "bool[1] c = {0}",
       "y = If <then_branch = t () => (a) { a = Relu(x) }, else_branch = e () => (b) { b = Relu(z) "
       "}>(c)",
       "float[B]"},
      {16, "float[B, 4] x, float[B] z", "int64[1] i = {1}, int64[1] n = {4}",
       "s = Shape(x) e = Gather(s, i) c = Equal(e, n) y = If <then_branch = t () => (a) { a = "
       "Relu(x) }, else_branch = e () => (b) { b = Relu(z) }>(c)",
       "float[B, 4]"},
      {16, "float[B, 4] x, float[B] z", "int64[1] i = {0}, int64[1] n = {4}",
       "s = Shape(x) e = Gather(s, i) c = Equal(e, n) y = If <then_branch = t () => (a) { a = "
       "Relu(x) }, else_branch = e () => (b) { b = Relu(z) }>(c)",
       "float"},
  });
}

TEST(ControlFlowShapes, LoopKeepsWhatEveryIterationKeeps) {
  expectShapes({
      {16, "int64 n, bool c, float[B, 4] x", "",
       "y = Loop <body = b (int64 i, bool k, float[B, 4] v) => (bool m, float[] w) { m = "
       "Identity(k) "
       "w = Relu(v) }>(n, c, x)",
       "float[B, 4]"},
      {16, "int64 n, bool c, float[N, 4] x", "",
       "y = Loop <body = b (int64 i, bool k, float[r, 4] v) => (bool m, float[] w) { m = "
       "Identity(k) "
       "w = Relu(v) }>(n, c, x)",
       "float[N, 4]"},
      {16, "int64 n, bool c, float[B, 4] x", "",
       "y = Loop <body = b (int64 i, bool k, float[r, 4] v) => (bool m, float[] w) { m = "
       "Identity(k) "
       "w = Concat <axis = 0>(v, v) }>(n, c, x)",
       "float[?, 4]"},
      {16, "int64 n, bool c, float[B] x, float[B] z", "",
       "y, u = Loop <body = b (int64 i, bool k, float[a] v, float[B] s) => (bool m, float w, float "
       "t) { m = Identity(k) w = Relu(s) t = Concat <axis = 0>(s, s) }>(n, c, x, z)",
       "float[?]; float[?]"},
      {16, "int64 n, bool c, float[B] x, float[B] z", "",
       "y = Loop <body = b (int64 i, bool k, float[a] v) => (bool m, float[] w) { m = Identity(k) "
       "w "
       "= Relu(z) }>(n, c, x)",
       "float[B]"},
      {16, "int64 n, bool c, float[B] x", "",
       "y = Loop <body = b (int64 i, bool k, float[] v) => (bool m, float[] w) { m = Identity(k) w "
       "= "
       "Relu(v) }>(n, c, x)",
       "float[B]"},
  });
}

TEST(ControlFlowShapes, LoopStacksWhatItScans) {
  expectShapes({
      {16, "int64 n, bool c, float[B, 4] x", "",
       "y = Loop <body = b (int64 i, bool k) => (bool m, float[] w) { m = Identity(k) w = Relu(x) "
       "}>(n, c)",
       "float[?, B, 4]"},
      {16, "int64 n, bool c, float[] x", "",
       "y = Loop <body = b (int64 i, bool k) => (bool m, float[] w) { m = Identity(k) w = Relu(x) "
       "}>(n, c)",
       "float"},
      {16, "int64 n, bool c", "",
       "y = Loop <body = b (int64 i, bool k) => (bool m) { m = Identity(k) }>(n, c)",
       "error: the body has fewer outputs than the node has results"},
      {16, "int64 n, bool c, float[B] x", "",
       "y = Loop <body = b (int64 i, bool k) => (bool m, float[] w) { m = Identity(k) w = Relu(x) "
       "}>(n, c, x)",
       "error: the body has fewer inputs than the node has operands"},
      {16, "int64 n, bool c", "", "y = Loop(n, c)", "error: the body is missing"},
  });
}

TEST(ControlFlowShapes, ScanHasARowForEachIteration) {
  expectShapes({
      {16, "float[T, 4] x", "",
       "y = Scan <num_scan_inputs = 1, body = b (float[4] r) => (float[] w) { w = Relu(r) }>(x)",
       "float[T, 4]"},
      {16, "float[4, T] x", "",
       "y = Scan <num_scan_inputs = 1, scan_input_axes = [-1], scan_output_axes = [1], body = b "
       "(float[4] r) => (float[] w) { w = Relu(r) }>(x)",
       "float[4, T]"},
      {16, "float[B] s, float[T, B] x", "",
       "y, z = Scan <num_scan_inputs = 1, body = b (float[B] v, float[B] r) => (float[] w, float[] "
       "u) { w = Relu(v) u = Add(v, r) }>(s, x)",
       "float[B]; float[T, B]"},
      {16, "float[T] x", "",
       "y = Scan <num_scan_inputs = 2, body = b (float r) => (float w) { w = Relu(r) }>(x)",
       "error: the number of scanned operands is wrong"},
      {16, "float[T] x", "",
       "y = Scan <num_scan_inputs = 1, scan_output_axes = [3], body = b (float r) => (float[] w) { "
       "w = Relu(r) }>(x)",
       "error: an output's axis is out of range"},
  });
}

TEST(ControlFlowShapes, SymbolsOfABodyAreWhatItsParametersGet) {
  expectShapes({
      {16, "float[N, 8] s, float[T, N, 4] x", "",
       "y, z = Scan <num_scan_inputs = 1, body = b (float[b, 8] v, float[b, 4] r) => (float[] w, "
       "float[] u) { w = Relu(v) u = Relu(r) }>(s, x)",
       "float[N, 8]; float[T, N, 4]"},
      {16, "float[N, T, 4] x", "",
       "z = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], body = b "
       "(float[b, c] r) => (float[] u) { u = Concat <axis = 0>(r, r) }>(x)",
       "float[2*N, T, 4]"},
      // Two parameters with one name get different extents.
      {16, "float[T, N, 4] x, float[T, M, 2] q", "",
       "z = Scan <num_scan_inputs = 2, body = b (float[b, 4] r, float[b, 2] p) => (float[] u) { u "
       "= Relu(r) }>(x, q)",
       "float[T, ?, 4]"},
      // A captured value has that name, too.
      {16, "float[T, N, 4] x, float[b, 4] captured", "",
       "z = Scan <num_scan_inputs = 1, body = b (float[b, 4] r) => (float[] u) { u = "
       "Add(r, captured) }>(x)",
       "float[T, ?, 4]"},
      // Each iteration makes the carried value longer.
      {16, "float[N] s, float[T, 4] x", "",
       "y, z = Scan <num_scan_inputs = 1, body = b (float[b] v, float[4] r) => (float[] w, float[] "
       "u) { w = Concat <axis = 0>(v, v) u = Relu(v) }>(s, x)",
       "float[?]; float[T, ?]"},
      {16, "int64 n, bool c, float[N, 8] s", "",
       "y, z = Loop <body = b (int64 i, bool k, float[b, 8] v) => (bool m, float[] w, float[] u) { "
       "m = Identity(k) w = Relu(v) u = Tanh(v) }>(n, c, s)",
       "float[N, 8]; float[?, N, 8]"},
  });
}

TEST(ControlFlowShapes, ParametersWithoutAShapeHaveThatOfTheirOperands) {
  expectShapes({
      {16, "float[N, 8] s, float[T, N, 8] x", "",
       "y, z = Scan <num_scan_inputs = 1, body = b (float[] v, float[] r) => (float[] w, float[] "
       "u) "
       "{ w = Add(v, r) u = Relu(r) }>(s, x)",
       "float[N, 8]; float[T, N, 8]"},
      {16, "int64 n, bool c, float[N, 8] s", "",
       "y = Loop <body = b (int64 i, bool k, float[] v) => (bool m, float[] w) { m = Identity(k) w "
       "= Relu(v) }>(n, c, s)",
       "float[N, 8]"},
      // The first iteration's extents are not those of the second.
      {16, "int64 n, bool c, float[N, 8] s", "",
       "y, z = Loop <body = b (int64 i, bool k, float[] v) => (bool m, float[] w, float[] u) { m = "
       "Identity(k) w = Concat <axis = 0>(v, v) u = Relu(v) }>(n, c, s)",
       "float; float"},
  });
}

} // namespace
} // namespace kvopt
