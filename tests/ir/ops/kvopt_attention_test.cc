// Shape rules of kvopt's own attention operators.
#include "support/string_ends.h"
#include "tests/ir/shapes/shape_graph.h"

namespace kvopt {
using namespace ir;

namespace {

class KvoptAttentionTest : public ShapeGraphTest {
protected:
  /// The type of an Sdpa result with past_length of the given type, or the error.
  std::string typeWithLength(Value& length) {
    Value& query = input({"B", "8", "S", "16"});
    Value& key = input({"B", "2", "T", "16"});
    Node& sdpa = node("ai.kvopt::Sdpa", {&query, &key, &key, nullptr, nullptr, &length});
    sdpa.setAttribute("scale", Attribute::ofFloat(0.25f));
    return inferred(sdpa.result());
  }
  std::string typeOfAppended(Value& fresh) {
    Value& past = input({"B", "2", "P", "16"});
    Value& length = input({"B"}, ElementType::Int64);
    return inferred(node("ai.kvopt::AppendRows", {&past, &fresh, &length}).result());
  }
};

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

TEST_F(KvoptAttentionTest, Blocks) {
  Value& query = input({"B", "8", "S", "16"});
  Value& key = input({"B", "2", "S", "16"});
  Value& value = input({"B", "2", "S", "32"});
  auto typeOf = [&](std::vector<Value*> blocks, int64_t axis = 3) {
    std::vector<Value*> operands{&query, &key, &value, nullptr, nullptr};
    operands.insert(operands.end(), blocks.begin(), blocks.end());
    Node& fused = node("ai.kvopt::BlockKvSdpa", operands);
    fused.setAttribute("scale", Attribute::ofFloat(0.25f));
    fused.setAttribute("key_axis", Attribute::ofInt(axis));
    return inferred(fused.result());
  };
  Value& keys = input({"B", "2", "16", "R"});
  Value& moreKeys = input({"B", "2", "16", "3"});
  Value& values = input({"B", "2", "R", "32"});
  Value& moreValues = input({"B", "2", "3", "32"});
  const std::string type = "float[B, 8, S, 32]";
  EXPECT_EQ(typeOf({&keys, &moreKeys, &values, &moreValues}), type);
  EXPECT_NE(typeOf({&keys, &values, &moreKeys, &moreValues}), type);
  EXPECT_NE(typeOf({&keys, &moreKeys, &values}), type);
  EXPECT_NE(typeOf({&moreKeys, &input({"B", "2", "4", "32"})}), type);
  EXPECT_NE(typeOf({&keys, &input({"B", "2", "R", "16"})}), type);
  // Rows lie along axis 2 of each, with columns side by side in one of them only.
  Value& rows = input({"B", "2", "R", "16"});
  Value& columns = input({"2*B", "16", "3"});
  EXPECT_EQ(typeOf({&rows, &rows, &values, &values}, 2), type);
  EXPECT_NE(typeOf({&rows, &columns, &values, &moreValues}, 2), type);
}

TEST_F(KvoptAttentionTest, CodesOfAnother) {
  Value& query = input({"B", "8", "S", "64"});
  Value& key = input({"B", "2", "C", "64"}, ElementType::Int8);
  Value& scale = input({"B", "2", "C", "1"});
  Value& value = input({"B", "2", "C", "32"}, ElementType::Int8);
  Value& length = input({"1"}, ElementType::Int64);
  const auto typeOf = [&](Value& keys, Value& keyScale, Value& values, int64_t width) {
    Node& reader =
        node("ai.kvopt::QuantizedSdpa", {&query, &keys, &keyScale, &values, &scale, &length});
    reader.setAttribute("scale", Attribute::ofFloat(0.25f));
    reader.setAttribute("v_width", Attribute::ofInt(width));
    return inferred(reader.result());
  };
  const std::string type = "float[B, 8, S, 32]";
  EXPECT_EQ(typeOf(key, scale, value, 32), type);
  // 64 columns of four bits are two groups of 17 bytes.
  Value& packedKey = input({"B", "2", "C", "34"}, ElementType::UInt8);
  Value& packedValue = input({"B", "2", "C", "17"}, ElementType::UInt8);
  EXPECT_EQ(typeOf(packedKey, scale, packedValue, 32), type);
  EXPECT_NE(typeOf(packedKey, scale, packedValue, 64), "float[B, 8, S, 64]");
  EXPECT_NE(typeOf(key, scale, value, 16), "float[B, 8, S, 16]");
  EXPECT_NE(typeOf(key, scale, value, 0), "float[B, 8, S, 0]");
  EXPECT_NE(typeOf(key, input({"B", "2", "C", "1"}, ElementType::Float16), value, 32), type);
  EXPECT_NE(typeOf(key, input({"B", "2", "C", "2"}), value, 32), type);
  EXPECT_NE(typeOf(input({"B", "2", "C", "64"}), scale, value, 32), type);
  EXPECT_NE(typeOf(input({"B", "3", "C", "64"}, ElementType::Int8), scale, value, 32), type);
}

TEST_F(KvoptAttentionTest, RoundedRows) {
  Node& rounding = node("ai.kvopt::QuantizeRows", {&input({"B", "2", "S", "64"})}, 2);
  EXPECT_EQ(inferred(rounding.result()), "int8[B, 2, S, 64]");
  EXPECT_EQ(rounding.result(1).type().str(), "float[B, 2, S, 1]");
  Node& ofIntegers = node("ai.kvopt::QuantizeRows", {&input({"B", "64"}, ElementType::Int64)}, 2);
  EXPECT_NE(inferred(ofIntegers.result()), "int8[B, 64]");
}

TEST_F(KvoptAttentionTest, Tiles) {
  Value& key = input({"B", "2", "T", "16"});
  Value& mask = input({"1", "1", "S", "T"});
  const auto typesOf = [&](Value& keys, Value& maskTerms, Value& maximum) {
    const ElementType state = maximum.type().elementType();
    Node& tile =
        node("ai.kvopt::AttentionTile",
             {&input({"B", "8", "S", "16"}), &keys, &input({"B", "2", "T", "32"}), &maskTerms,
              &input({"B", "8", "S", "32"}, state), &maximum, &input({"B", "8", "S", "1"}, state)},
             3);
    const std::string first = inferred(tile.result());
    if (startsWith(first, "error"))
      return first;
    return first + " " + tile.result(1).type().str() + " " + tile.result(2).type().str();
  };
  // In float16 the maximum is two numbers.
  Value& half = input({"B", "8", "S", "2"}, ElementType::Float16);
  EXPECT_EQ(typesOf(key, mask, half),
            "float16[B, 8, S, 32] float16[B, 8, S, 2] float16[B, 8, S, 1]");
  EXPECT_EQ(typesOf(key, mask, input({"B", "8", "S", "1"})),
            "float[B, 8, S, 32] float[B, 8, S, 1] float[B, 8, S, 1]");
  for (const std::string& wrong :
       {typesOf(input({"B", "3", "T", "16"}), mask, half),
        typesOf(key, input({"1", "1", "S", "T + 2"}), half),
        typesOf(key, mask, input({"B", "8", "S", "1"}, ElementType::Int64)),
        typesOf(key, mask, input({"B", "8", "S", "1"}, ElementType::Float16)),
        typesOf(key, mask, input({"B", "8", "S"}, ElementType::Float16))})
    EXPECT_FALSE(llvm::StringRef(wrong).contains("[B, 8, S, 32]")) << wrong;
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
  // [B,C,G,D]: the extent of the heads is another.
  fused.setAttribute("key_axis", Attribute::ofInt(1));
  EXPECT_EQ(inferred(fused.result()), "error: head counts of cache and new rows differ: 2 and 16");
}

/// The type of the first result of InPlaceQuantizedKvSdpa over caches and scales of these types.
class QuantizedAttentionTest : public KvoptAttentionTest {
protected:
  std::string typeOver(Value& pastKey, Value& keyScale, int64_t keyAxis = 2,
                       Value* packedValue = nullptr) {
    Value& query = input({"B", "8", "S", "16"});
    Value& key = input({"B", "2", "S", "16"});
    Value& value = input({"B", "2", "S", "32"});
    Value& pastValue = packedValue ? *packedValue : input({"B", "2", "C", "32"}, ElementType::Int8);
    Value& valueScale = input({"B", "2", "C", "1"});
    Value& length = input({"1"}, ElementType::Int64);
    Node& fused =
        node("ai.kvopt::InPlaceQuantizedKvSdpa",
             {&query, &key, &value, &pastKey, &keyScale, &pastValue, &valueScale, &length}, 5);
    fused.setAttribute("scale", Attribute::ofFloat(0.25f));
    fused.setAttribute("key_axis", Attribute::ofInt(keyAxis));
    std::string type = inferred(fused.result());
    if (!startsWith(type, "error")) {
      EXPECT_EQ(fused.result(1).type(), pastKey.type());
      EXPECT_EQ(fused.result(2).type(), keyScale.type());
      EXPECT_EQ(fused.result(3).type(), pastValue.type());
      EXPECT_EQ(fused.result(4).type(), valueScale.type());
    }
    return type;
  }
  Value& codes() { return input({"B", "2", "C", "16"}, ElementType::Int8); }
};

TEST_F(QuantizedAttentionTest, RowsInHeads) {
  EXPECT_EQ(typeOver(codes(), input({"B", "2", "C", "1"})), "float[B, 8, S, 32]");
}
TEST_F(QuantizedAttentionTest, TransposedKeys) {
  EXPECT_EQ(
      typeOver(input({"B", "2", "16", "C"}, ElementType::Int8), input({"B", "2", "1", "C"}), 3),
      "float[B, 8, S, 32]");
}
TEST_F(QuantizedAttentionTest, CachesThatAreNotInt8) {
  EXPECT_EQ(typeOver(input({"B", "2", "C", "16"}), input({"B", "2", "C", "1"})),
            "error: the cache is float[B, 2, C, 16], it should be int8");
}
// One group of 16 columns is eight bytes and a multiplier, one of 32 sixteen and one.
TEST_F(QuantizedAttentionTest, RowsOfFourBitCodes) {
  EXPECT_EQ(typeOver(input({"B", "2", "C", "9"}, ElementType::UInt8), input({"B", "2", "C", "1"}),
                     2, &input({"B", "2", "C", "17"}, ElementType::UInt8)),
            "float[B, 8, S, 32]");
}
TEST_F(QuantizedAttentionTest, RowsOfTooFewBytes) {
  EXPECT_EQ(typeOver(input({"B", "2", "C", "8"}, ElementType::UInt8), input({"B", "2", "C", "1"}),
                     2, &input({"B", "2", "C", "17"}, ElementType::UInt8)),
            "error: widths of cache and new rows differ: 9 and 8");
}
TEST_F(QuantizedAttentionTest, CodesOfTwoWidths) {
  EXPECT_EQ(typeOver(input({"B", "2", "C", "9"}, ElementType::UInt8), input({"B", "2", "C", "1"})),
            "error: widths of cache and new rows differ: 17 and 32");
}
TEST_F(QuantizedAttentionTest, FourBitCodesInColumns) {
  EXPECT_EQ(typeOver(input({"B", "2", "9", "C"}, ElementType::UInt8), input({"B", "2", "1", "C"}),
                     3, &input({"B", "2", "C", "17"}, ElementType::UInt8)),
            "error: rows of four-bit codes must have their columns side by side");
}
TEST_F(QuantizedAttentionTest, ScalesThatDoNotFit) {
  const std::string cache = " do not fit the cache int8[B, 2, C, 16]: one float a row";
  EXPECT_EQ(typeOver(codes(), input({"B", "2", "C", "16"})),
            "error: scales float[B, 2, C, 16]" + cache);
}
TEST_F(QuantizedAttentionTest, ScalesOfAnotherRank) {
  const std::string cache = " do not fit the cache int8[B, 2, C, 16]: one float a row";
  EXPECT_EQ(typeOver(codes(), input({"B", "2", "C"})), "error: scales float[B, 2, C]" + cache);
}
TEST_F(QuantizedAttentionTest, ScalesOfAnotherType) {
  const std::string cache = " do not fit the cache int8[B, 2, C, 16]: one float a row";
  EXPECT_EQ(typeOver(codes(), input({"B", "2", "C", "1"}, ElementType::Float16)),
            "error: scales float16[B, 2, C, 1]" + cache);
}

TEST_F(KvoptAttentionTest, OnePastLength) {
  EXPECT_EQ(typeWithLength(input({"1"}, ElementType::Int64)), "float[B, 8, S, 16]");
}
TEST_F(KvoptAttentionTest, PastLengthOfEachBatchRow) {
  EXPECT_EQ(typeWithLength(input({"B"}, ElementType::Int64)), "float[B, 8, S, 16]");
}
TEST_F(KvoptAttentionTest, TooManyPastLengths) {
  EXPECT_EQ(typeWithLength(input({"B + 2"}, ElementType::Int64)),
            "error: past_length has B + 2 elements, not 1 or one a batch row");
}
TEST_F(KvoptAttentionTest, PastLengthOfAnotherType) {
  EXPECT_EQ(typeWithLength(input({"1"}, ElementType::Int32)),
            "error: past_length is int32[1], it should be int64");
}

TEST_F(KvoptAttentionTest, AppendRows) {
  EXPECT_EQ(typeOfAppended(input({"B", "2", "S", "16"})), "float[B, 2, P + S, 16]");
}
TEST_F(KvoptAttentionTest, AppendRowsOfOtherHeads) {
  EXPECT_EQ(typeOfAppended(input({"B", "4", "S", "16"})),
            "error: head counts of past and fresh rows differ: 2 and 4");
}
TEST_F(KvoptAttentionTest, AppendRowsOfAnotherType) {
  EXPECT_EQ(typeOfAppended(input({"B", "2", "S", "16"}, ElementType::Float16)),
            "error: the past is float[B, 2, P, 16], the fresh rows are float16[B, 2, S, 16]");
}

} // namespace
} // namespace kvopt
