// Shape rules of kvopt's own attention operators.
#include "tests/ir/shape_graph.h"

namespace kvopt {
namespace {

using KvoptAttentionTest = ShapeGraphTest;

TEST_F(KvoptAttentionTest, Sdpa) {
  struct Case {
    Shape q, k, v;
    bool valid;
  };
  const Shape q = dims({"B", "8", "S", "16"});
  for (const Case& c :
       {Case{q, dims({"B", "2", "T", "16"}), dims({"B", "2", "T", "32"}), true},
        Case{q, dims({"B", "3", "T", "16"}), dims({"B", "3", "T", "32"}), false},
        Case{q, dims({"B", "2", "T", "8"}), dims({"B", "2", "T", "32"}), false},
        Case{q, dims({"B", "2", "T", "16"}), dims({"B", "2", "T + 1", "32"}), false},
        Case{q, dims({"B", "2", "T", "16"}), dims({"B", "4", "T", "32"}), false},
        Case{q, dims({"B", "2", "16"}), dims({"B", "2", "T", "32"}), false}}) {
    Graph local(context, opsets);
    Value& query = local.addInput("q", TensorType(ElementType::Float, c.q));
    Value& key = local.addInput("k", TensorType(ElementType::Float, c.k));
    Value& value = local.addInput("v", TensorType(ElementType::Float, c.v));
    Node& sdpa = local.createFresh("ai.kvopt::Sdpa", {&query, &key, &value}, 1);
    sdpa.setAttribute("scale", Attribute::ofFloat(0.25f));
    llvm::Error error = inferNode(sdpa);
    EXPECT_EQ(!error, c.valid);
    if (!error) {
      EXPECT_EQ(sdpa.result().type().str(), "float[B, 8, S, 32]");
    }
    llvm::consumeError(std::move(error));
  }
}

TEST_F(KvoptAttentionTest, InPlaceWithTransposedKeys) {
  Value& query = input({"B", "8", "S", "16"});
  Value& key = input({"B", "2", "S", "16"});
  Value& value = input({"B", "2", "S", "32"});
  Value& pastKey = input({"B", "2", "16", "C"});
  Value& pastValue = input({"B", "2", "C", "32"});
  Value& length = input({"1"}, ElementType::Int64);
  Node& fused =
      node("ai.kvopt::InPlaceKvSdpa", {&query, &key, &value, &pastKey, &pastValue, &length}, 3);
  fused.setAttribute("scale", Attribute::ofFloat(0.25f));
  fused.setAttribute("key_axis", Attribute::ofInt(3));
  EXPECT_EQ(inferred(fused.result()), "float[B, 8, S, 32]");
  EXPECT_EQ(fused.result(1).type(), pastKey.type());
  EXPECT_EQ(fused.result(2).type(), pastValue.type());
  fused.setAttribute("key_axis", Attribute::ofInt(1));
  EXPECT_EQ(inferred(fused.result()), "error: head counts of cache and new rows: 2 and C");
}

} // namespace
} // namespace kvopt
