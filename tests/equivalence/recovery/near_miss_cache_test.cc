// Near misses around the caches: what is concatenated, who else reads it, which layers share it.
#include "tests/equivalence/recovery/near_miss.h"

namespace kvopt {
using namespace ir;
using namespace targets;

namespace {

constexpr const char* llama = "llama_gqa-ts14-eager";
constexpr const char* gpt2 = "gpt2-dynamo18-eager";

void swapParts(Node& concat) {
  Value* past = concat.operand(0);
  Value* fresh = concat.operand(1);
  concat.setOperand(0, fresh);
  concat.setOperand(1, past);
}

Value& roundedToHalf(MutatedDecoder& d, Value& value) {
  Value& half = d.add("Cast", {&value}, MutatedDecoder::attributeList("to", 10));
  return d.add("Cast", {&half}, MutatedDecoder::attributeList("to", 1));
}

Value& backwards(MutatedDecoder& d, Value& value) {
  return d.add("Slice", {&value, &d.integers({-1}), &d.integers({INT64_MIN + 1}), &d.integers({2}),
                         &d.integers({-1})});
}

/// The first layer's part of `attention` that carries all keys or values.
Node& concatOf(MutatedDecoder& d, unsigned layer, bool ofKeys) {
  return ofKeys ? *d.attentions[layer].keyConcat : *d.attentions[layer].valueConcat;
}

/// Lets `build` stand between a concatenation and the attention; the output stays what it was.
void betweenCacheAndAttention(MutatedDecoder& d, Node& concat,
                              llvm::function_ref<Value&(Value&)> build) {
  d.wrapResult(concat, build);
}

unsigned slotOf(Graph& graph, const Value& value) {
  for (unsigned slot = 0; slot < graph.outputs().size(); ++slot)
    if (graph.outputs()[slot] == &value)
      return slot;
  throw std::runtime_error("no output");
}

/// Gives the present's output slot to another value.
void replaceOutput(MutatedDecoder& d, Value& present, llvm::function_ref<Value&(Value&)> build) {
  unsigned slot = slotOf(d.graph(), present);
  Value& other = build(present);
  std::string name = present.name().str();
  d.graph().rename(present, d.graph().freshName("inner"));
  d.graph().rename(other, name);
  d.graph().setOutput(slot, other);
}

std::vector<Mutation> cacheMutations() {
  std::vector<Mutation> list;
  for (const char* model : {llama, gpt2}) {
    for (bool ofKeys : {true, false}) {
      auto add = [&](const char* name, std::function<void(MutatedDecoder&, Node&)> change,
                     const char* reason) {
        auto mutate = [change, ofKeys](MutatedDecoder& d) { change(d, concatOf(d, 0, ofKeys)); };
        list.push_back(
            {std::string(name) + (ofKeys ? "Keys" : "Values") + (model == llama ? "Llama" : "Gpt2"),
             model, mutate, reason});
      };
      add(
          "NewBeforePast", [](MutatedDecoder&, Node& concat) { swapParts(concat); },
          "new-before-past");
      add(
          "PastReadAsData",
          [](MutatedDecoder& d, Node& concat) {
            d.expose(d.add("ReduceMax", {concat.operand(0)}));
          },
          "cache-escapes");
      add(
          "PresentReadAsData",
          [](MutatedDecoder& d, Node& concat) {
            Value& last = d.add("Slice", {&concat.result(), &d.integers({-1}),
                                          &d.integers({INT64_MAX}), &d.integers({2})});
            d.expose(last);
          },
          "cache-escapes");
      add(
          "PresentNotOutput",
          [](MutatedDecoder& d, Node& concat) {
            replaceOutput(d, concat.result(), [&](Value& present) -> Value& {
              return d.add("Mul", {&present, &d.number(0.5)});
            });
          },
          "present-not-output");
      add(
          "PastScaled",
          [](MutatedDecoder& d, Node& concat) {
            d.wrapOperand(concat, 0, [&](Value& past) -> Value& {
              return d.add("Mul", {&past, &d.number(0.5)});
            });
          },
          "past-not-input");
      add(
          "PastRounded",
          [](MutatedDecoder& d, Node& concat) {
            d.wrapOperand(concat, 0, [&](Value& past) -> Value& { return roundedToHalf(d, past); });
          },
          "past-not-input");
      add(
          "ScaledByTheNumberOfRows",
          [](MutatedDecoder& d, Node& concat) {
            betweenCacheAndAttention(d, concat, [&](Value& all) -> Value& {
              Value& extents = d.add("Shape", {&all});
              Value& rows = d.add("Gather", {&extents, &d.integers({2})});
              Value& number = d.add("Cast", {&rows},
                                    MutatedDecoder::attributeList("to", static_cast<int64_t>(1)));
              return d.add("Div", {&all, &number});
            });
          },
          "cache-transformed");
      add(
          "RowsReversed",
          [](MutatedDecoder& d, Node& concat) {
            betweenCacheAndAttention(d, concat,
                                     [&](Value& all) -> Value& { return backwards(d, all); });
          },
          "axis-unproven");
      add(
          "HeadsSwapped",
          [](MutatedDecoder& d, Node& concat) {
            std::vector<int64_t> order;
            for (int64_t head = *concat.result().type().dim(1).value(); head-- > 0;)
              order.push_back(head);
            betweenCacheAndAttention(d, concat, [&](Value& all) -> Value& {
              return d.add("Gather", {&all, &d.integers(order)},
                           MutatedDecoder::attributeList("axis", 1));
            });
          },
          "heads-not-grouped");
      add(
          "PastOutputAsWell", [](MutatedDecoder& d, Node& concat) { d.expose(*concat.operand(0)); },
          "cache-escapes");
    }
    auto add = [&](const char* name, std::function<void(MutatedDecoder&)> mutate,
                   const char* reason) {
      list.push_back(
          {std::string(name) + (model == llama ? "Llama" : "Gpt2"), model, mutate, reason});
    };
    add(
        "LaterLayerReadsTheFirstOnesKeys",
        [](MutatedDecoder& d) {
          Value& first = *d.attentions[0].scores->operand(1);
          d.attentions[1].scores->setOperand(1, &first);
        },
        "shared-reader");
    add(
        "LaterLayerReadsTheFirstOnesValues",
        [](MutatedDecoder& d) {
          Value& first = *d.attentions[0].weighing->operand(1);
          d.attentions[1].weighing->setOperand(1, &first);
        },
        "shared-reader");
    add(
        "OnePastForKeysAndValues",
        [](MutatedDecoder& d) {
          Value& past = *d.attentions[0].keyConcat->operand(0);
          d.attentions[0].valueConcat->setOperand(0, &past);
        },
        "shared-reader");
    add(
        "KeysReshapedInsteadOfTransposed",
        [](MutatedDecoder& d) {
          Node& scores = *d.attentions[0].scores;
          d.wrapOperand(scores, 1, [&](Value& transposed) -> Value& {
            Value& back =
                d.add("Transpose", {&transposed}, MutatedDecoder::permutation({0, 1, 3, 2}));
            return d.add("Reshape", {&back, &d.add("Shape", {&transposed})});
          });
        },
        "axis-unproven");
    add(
        "MaskFromTheCache",
        [](MutatedDecoder& d) {
          Value& most = d.add("ReduceMax", {&d.attentions[0].keyConcat->result()},
                              MutatedDecoder::attributeList("keepdims", 0));
          d.wrapOperand(*d.attentions[0].masking, 1, [&](Value& mask) -> Value& {
            return d.add("Add", {&mask, &most});
          });
        },
        "cache-escapes");
  }
  return list;
}

class NearMissCacheTest : public NearMissTest {};

TEST_P(NearMissCacheTest, IsRefusedWithItsReasonAndLeftAsItWas) { expectRefusedAndLeftAsItWas(); }

INSTANTIATE_TEST_SUITE_P(Mutations, NearMissCacheTest, testing::ValuesIn(cacheMutations()),
                         nearMissName);

} // namespace
} // namespace kvopt
