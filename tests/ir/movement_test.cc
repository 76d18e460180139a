// Movements of every operator that only moves data, in every version of its definition.
#include "ir/movement.h"

#include "ir/shapes/shape_inference.h"
#include "support/format.h"
#include "tests/ir/text/text_fixture.h"

#include <set>

namespace kvopt {
using namespace ir;

namespace {

std::string textOf(MovementKind kind) {
  switch (kind) {
  case MovementKind::Same:
    return "Same";
  case MovementKind::Convert:
    return "Convert";
  case MovementKind::Permutation:
    return "Permutation";
  case MovementKind::Reshape:
    return "Reshape";
  case MovementKind::InsertAxes:
    return "InsertAxes";
  case MovementKind::RemoveAxes:
    return "RemoveAxes";
  case MovementKind::Broadcast:
    return "Broadcast";
  case MovementKind::Repeat:
    return "Repeat";
  case MovementKind::Slice:
    return "Slice";
  case MovementKind::Gather:
    return "Gather";
  case MovementKind::PointGather:
    return "PointGather";
  case MovementKind::Concat:
    return "Concat";
  }
  return "";
}

/// "Slice 1 [0:4:1]": kind, axes ("?" where they are not known), ranges and counts.
std::string textOf(const Movement& movement) {
  std::string text = textOf(movement.kind);
  if (movement.axes)
    for (unsigned axis : *movement.axes)
      text += formatted(" {}", axis);
  else
    text += " ?";
  for (const MovementRange& range : movement.ranges)
    text += formatted(" [{}:{}:{}]", range.start.known.str(), range.end.known.str(),
                      range.step.known.str());
  for (const MovementNumber& count : movement.counts)
    text += formatted(" x{}", count.known.str());
  return text;
}

struct MovementCase {
  int opset;
  const char* inputs;
  const char* constants;
  const char* nodes;
  /// Of the last node's results, separated by "; ".
  const char* expected;
};

std::string movementText(const MovementCase& movement) {
  auto model =
      readOrFail(formatted("<ir_version: 8, opset_import: [\"\" : {}]> g ({}) => () <{}> {{ {} }}",
                           movement.opset, movement.inputs, movement.constants, movement.nodes));
  if (!model)
    return "unreadable";
  if (llvm::Error error = inferShapes(model->graph()))
    return takeDiagnostic(std::move(error)).str();
  std::string text;
  for (const Value& result : model->graph().nodes().back().results()) {
    std::optional<Movement> found = movementOf(result);
    text += (text.empty() ? "" : "; ") + (found ? textOf(*found) : "none");
  }
  return text;
}

void expectMovements(llvm::ArrayRef<MovementCase> table) {
  for (const MovementCase& movement : table)
    EXPECT_EQ(movementText(movement), movement.expected)
        << movement.nodes << " of (" << movement.inputs << ") at opset " << movement.opset;
}

TEST(MovementTest, ElementsAsTheyAreOrConverted) {
  expectMovements({
      {1, "float[2, 3] x", "", "y = Identity(x)", "Same ?"},
      {6, "float[2, 3] x", "", "y = Cast <to = 10>(x)", "Convert ?"},
      {19, "float[2, 3] x", "", "y = Cast <to = 10>(x)", "Convert ?"},
      {24, "float[2, 3] x", "", "y = Cast <to = 10>(x)", "Convert ?"},
      {15, "float[2, 3] x, float16[1] t", "", "y = CastLike(x, t)", "Convert ?"},
      {19, "float[2, 3] x, float16[1] t", "", "y = CastLike(x, t)", "Convert ?"},
      {17, "float[2, 3] x", "", "y = Neg(x)", "none"},
      {17, "float[2, 3] x, float[2, 3] z", "", "y = Add(x, z)", "none"},
      {26, "float[2, 3] x", "", "y = BitCast <to = 6>(x)", "none"},
  });
}

TEST(MovementTest, Permutations) {
  expectMovements({
      {13, "float[B, S, 4] x", "", "y = Transpose <perm = [0, 2, 1]>(x)", "Permutation 0 2 1"},
      {1, "float[B, S, 4] x", "", "y = Transpose(x)", "Permutation 2 1 0"},
      {13, "float[] x", "", "y = Transpose <perm = [1, 0]>(x)", "Permutation 1 0"},
      {13, "float[] x", "", "y = Transpose(x)", "Permutation ?"},
  });
}

TEST(MovementTest, ReshapesInRowMajorOrder) {
  expectMovements({
      {5, "float[B, 6] x", "int64[2] t = {0, -1}", "y = Reshape(x, t)", "Reshape ?"},
      {14, "float[B, 6] x, int64[2] t", "", "y = Reshape <allowzero = 1>(x, t)", "Reshape ?"},
      {13, "float[B, 2, 3] x", "", "y = Flatten(x)", "Reshape ?"},
  });
}

TEST(MovementTest, AxesOfExtentOne) {
  expectMovements({
      {11, "float[B, S] x", "", "y = Unsqueeze <axes = [-1, 0]>(x)", "InsertAxes 0 3"},
      {13, "float[B, S] x", "int64[2] a = {-1, 0}", "y = Unsqueeze(x, a)", "InsertAxes 0 3"},
      {13, "float[] x", "int64[1] a = {1}", "y = Unsqueeze(x, a)", "InsertAxes ?"},
      {13, "float[B, S] x, int64[1] a", "", "y = Unsqueeze(x, a)", "InsertAxes ?"},
      {11, "float[1, S, 1] x", "", "y = Squeeze <axes = [-1, 0]>(x)", "RemoveAxes 0 2"},
      {13, "float[1, S, 1] x", "int64[1] a = {-1}", "y = Squeeze(x, a)", "RemoveAxes 2"},
      {13, "float[1, 3, 1] x", "", "y = Squeeze(x)", "RemoveAxes 0 2"},
      {11, "float[1, 3, 1] x", "", "y = Squeeze(x)", "RemoveAxes 0 2"},
      {13, "float[1, S, 1] x", "", "y = Squeeze(x)", "RemoveAxes ?"},
      {13, "float[1, S] x, int64[1] a", "", "y = Squeeze(x, a)", "RemoveAxes ?"},
  });
}

TEST(MovementTest, Repetitions) {
  expectMovements({
      {13, "float[B, 1, 4] x", "int64[3] t = {1, 8, 1}", "y = Expand(x, t)",
       "Broadcast ? x1 x8 x1"},
      {8, "float[B, 1] x, int64[2] t", "", "y = Expand(x, t)", "Broadcast ? x? x?"},
      {13, "float[B, 2, 4] x", "int64[1] t = {4}", "y = Expand(x, t)", "Broadcast ?"},
      {13, "float[B, 2] x", "int64[2] t = {1, 3}", "y = Tile(x, t)", "Repeat ? x1 x3"},
      {6, "float[B, 2] x, int64[2] t", "", "y = Tile(x, t)", "Repeat ? x? x?"},
      {13, "float[] x", "int64[2] t = {1, 3}", "y = Tile(x, t)", "Repeat ?"},
  });
}

TEST(MovementTest, SlicesOfAttributes) {
  expectMovements({
      {9, "float[B, 8] x", "", "y = Slice <axes = [-1], starts = [2], ends = [-1]>(x)",
       "Slice 1 [2:7:1]"},
      {9, "float[6, 8] x", "", "y = Slice <starts = [2, 0], ends = [100, 3]>(x)",
       "Slice 0 1 [2:6:1] [0:3:1]"},
  });
}

TEST(MovementTest, SlicesOfOperands) {
  expectMovements({
      {10, "float[B, 8] x", "int64[1] s = {-3}, int64[1] e = {9223372036854775807}",
       "y = Slice(x, s, e)", "Slice 0 [-3:9223372036854775807:1]"},
      {13, "float[B, 8] x",
       "int64[1] s = {-20}, int64[1] e = {-1}, int64[1] a = {1}, int64[1] k = {2}",
       "y = Slice(x, s, e, a, k)", "Slice 1 [0:7:2]"},
      {13, "float[B, 8] x",
       "int64[1] s = {-1}, int64[1] e = {-9223372036854775808}, int64[1] a = {1}, "
       "int64[1] k = {-1}",
       "y = Slice(x, s, e, a, k)", "Slice 1 [7:-9223372036854775808:-1]"},
      {13, "float[B, 8] x",
       "int64[1] s = {20}, int64[1] e = {30}, int64[1] a = {1}, int64[1] k = {-1}",
       "y = Slice(x, s, e, a, k)", "Slice 1 [7:30:-1]"},
      {13, "float[B, 0] x", "int64[1] s = {-2}, int64[1] e = {9}, int64[1] a = {1}",
       "y = Slice(x, s, e, a)", "Slice 1 [0:0:1]"},
      {13, "float[B, 8] x, int64[2] s, int64[2] e", "", "y = Slice(x, s, e)",
       "Slice 0 1 [?:?:1] [?:?:1]"},
      {13, "float[B, T] x, float[T] z", "int64[1] zero = {0}, int64[1] a = {1}",
       "n = Shape(z) y = Slice(x, zero, n, a)", "Slice 1 [0:T:1]"},
      {13, "float[B, 8] x, int64[1] s, int64[1] e, int64[1] a, int64[1] k", "",
       "y = Slice(x, s, e, a, k)", "Slice ?"},
      {13, "float[B, 8] x, int64[1] s, int64[1] e, int64[1] k", "int64[1] a = {-1}",
       "y = Slice(x, s, e, a, k)", "Slice 1 [?:?:?]"},
      {13, "float[] x", "int64[1] s = {0}, int64[1] e = {1}", "y = Slice(x, s, e)", "Slice ?"},
  });
}

TEST(MovementTest, SplitsAreSlices) {
  expectMovements({
      {2, "float[B, 6] x", "", "a, b = Split <axis = 1, split = [2, 4]>(x)",
       "Slice 1 [0:2:1]; Slice 1 [2:6:1]"},
      {13, "float[B, 6] x", "int64[2] s = {4, 2}", "a, b = Split <axis = -1>(x, s)",
       "Slice 1 [0:4:1]; Slice 1 [4:6:1]"},
      {18, "float[7, 2] x", "", "a, b = Split <num_outputs = 2>(x)",
       "Slice 0 [0:4:1]; Slice 0 [4:7:1]"},
      {13, "float[B, 6] x, int64[2] s", "", "a, b = Split <axis = 1>(x, s)",
       "Slice 1 [0:?:1]; Slice 1 [?:?:1]"},
      {13, "float[] x", "", "a, b = Split(x)", "Slice ?; Slice ?"},
  });
}

TEST(MovementTest, GathersOfEntriesAndOfPoints) {
  expectMovements({
      {1, "float[B, 6] x, int64[2] i", "", "y = Gather(x, i)", "Gather 0"},
      {13, "float[B, 6] x, int64[2] i", "", "y = Gather <axis = -1>(x, i)", "Gather 1"},
      {13, "float[] x, int64[2] i", "", "y = Gather(x, i)", "Gather ?"},
      {11, "float[B, 6] x, int64[N, 1] i", "", "y = GatherND(x, i)", "PointGather 0"},
      {12, "float[B, 6, 4] x, int64[N, 2] i", "", "y = GatherND(x, i)", "PointGather 0 1"},
      {12, "float[B, 6] x, int64[B, N, 1] i", "", "y = GatherND <batch_dims = 1>(x, i)",
       "PointGather ?"},
      {12, "float[B, 6] x, int64[N, K] i", "", "y = GatherND(x, i)", "PointGather ?"},
      {13, "float[B, 6] x, int64[B, 2] i", "", "y = GatherElements <axis = 1>(x, i)", "none"},
  });
}

TEST(MovementTest, Concats) {
  expectMovements({
      {1, "float[B, P] x, float[B, S] y", "", "z = Concat(x, y)", "Concat 1"},
      {13, "float[B, P, D] x, float[B, S, D] y", "", "z = Concat <axis = -2>(x, y)", "Concat 1"},
      {13, "float[] x, float[] y", "", "z = Concat <axis = 1>(x, y)", "Concat ?"},
  });
}

/// The one node of a model at opset 13.
std::unique_ptr<Model> modelOf(const char* inputs, const char* node) {
  auto model = readOrFail(
      formatted("<ir_version: 8, opset_import: [\"\" : 13]> g ({}) => () {{ {} }}", inputs, node));
  EXPECT_TRUE(model && !inferShapes(model->graph()));
  return model;
}

TEST(MovementTest, ListsAreNamedWhereTheirNumbersAreNotKnown) {
  auto model = modelOf("float[B, 8] x, int64[2] s, int64[2] e", "y = Slice(x, s, e)");
  const Node& slice = model->graph().nodes().back();
  const Movement movement = *movementOf(slice.result());
  ASSERT_EQ(movement.ranges.size(), 2u);
  EXPECT_EQ(movement.ranges[1].start.list, slice.operand(1));
  EXPECT_EQ(movement.ranges[1].start.entry, 1u);
  EXPECT_EQ(movement.ranges[1].end.list, slice.operand(2));
  EXPECT_EQ(movement.ranges[1].step.list, nullptr);
}

TEST(MovementTest, OperandsThatAreMoved) {
  auto gather = modelOf("float[B, 8] x, int64[2] i", "y = Gather(x, i)");
  const Node& picks = gather->graph().nodes().back();
  EXPECT_EQ(movementKind(picks), MovementKind::Gather);
  EXPECT_EQ(movedOperand(picks), picks.operand(0));
  EXPECT_TRUE(isMoved(picks.operands()[0]));
  EXPECT_FALSE(isMoved(picks.operands()[1]));
  Value& other = gather->graph().addInput("other", TensorType(ElementType::Float));
  EXPECT_EQ(operandsMoving(picks, other), (llvm::SmallVector<Value*, 4>{&other, picks.operand(1)}));

  auto concat = modelOf("float[B, 8] x, float[B, 8] z", "y = Concat <axis = 0>(x, z)");
  for (const Use& use : concat->graph().nodes().back().operands())
    EXPECT_TRUE(isMoved(use));

  auto sum = modelOf("float[B, 8] x, float[B, 8] z", "y = Add(x, z)");
  const Node& add = sum->graph().nodes().back();
  EXPECT_EQ(movementKind(add), std::nullopt);
  EXPECT_EQ(movedOperand(add), nullptr);
  EXPECT_FALSE(isMoved(add.operands()[0]));
  EXPECT_FALSE(movementOf(*add.operand(0)));
}

TEST(MovementTest, AttributesOfTheCallAreNotKnown) {
  auto model = modelOf("float[B, 2, 4] x", "y = Transpose <perm = [0, 2, 1]>(x)");
  Node& transpose = model->graph().nodes().back();
  transpose.setAttribute("perm", Attribute::reference("order", AttributeKind::Ints));
  EXPECT_EQ(textOf(*movementOf(transpose.result())), "Permutation ?");
}

TEST(MovementTest, ViewsAreMovementsThatKeepTheOrder) {
  std::set<std::string> views;
  for (const OpDef* definition : textRegistry().all())
    for (const Alias& alias : definition->aliases)
      if (alias.kind == Alias::Kind::View) {
        SCOPED_TRACE(definition->name.str() + " " + std::to_string(definition->since));
        views.insert(definition->name.str());
        ASSERT_TRUE(definition->movement);
        EXPECT_TRUE(keepsOrder(definition->movement->kind));
        EXPECT_NE(definition->movement->kind, MovementKind::Convert);
        EXPECT_EQ(definition->movement->data, alias.operand);
      }
  EXPECT_EQ(views,
            (std::set<std::string>{"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}));
}

TEST(MovementTest, EveryVersionOfAnOperatorMovesDataOrNone) {
  std::map<std::string, std::set<bool>> moves;
  for (const OpDef* definition : textRegistry().all())
    moves[definition->name.str()].insert(definition->movement.has_value());
  for (const auto& [name, kinds] : moves)
    EXPECT_EQ(kinds.size(), 1u) << name;
}

} // namespace
} // namespace kvopt
