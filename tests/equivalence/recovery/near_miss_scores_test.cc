// Near misses between the two matrix products: scale, mask, softmax and who else reads them.
#include "tests/equivalence/recovery/near_miss.h"

namespace kvopt {
using namespace ir;
using namespace pattern;

namespace {

constexpr const char* scoresLlama = "llama_gqa-ts14-eager";
constexpr const char* scoresGpt2 = "gpt2-dynamo18-eager";

/// The same change in every layer.
std::function<void(MutatedDecoder&)>
everywhere(std::function<void(MutatedDecoder&, SpelledAttention&)> change) {
  return [change](MutatedDecoder& decoder) {
    for (SpelledAttention& attention : decoder.attentions)
      change(decoder, attention);
  };
}

void replaceOperator(MutatedDecoder& decoder, Node& node, OpName op) {
  Value& replacement = decoder.add(op, {node.operand(0), node.operand(1)});
  node.result().replaceAllUsesWith(replacement);
  restoreOrder(decoder.graph());
}

Value& castTo(MutatedDecoder& decoder, Value& value, ElementType type) {
  return decoder.add("Cast", {&value},
                     MutatedDecoder::attributeList("to", static_cast<int64_t>(type)));
}

std::vector<Mutation> scoreMutations() {
  std::vector<Mutation> list;
  for (const char* model : {scoresLlama, scoresGpt2}) {
    auto add = [&](const char* name, std::function<void(MutatedDecoder&, SpelledAttention&)> change,
                   const char* reason) {
      list.push_back({std::string(name) + (model == scoresLlama ? "Llama" : "Gpt2"), model,
                      everywhere(std::move(change)), reason});
    };
    add(
        "SoftmaxOverQueries",
        [](MutatedDecoder&, SpelledAttention& a) {
          a.softmax->setAttribute("axis", Attribute::ofInt(-2));
        },
        "pattern-mismatch");
    add(
        "ProbabilitiesUsedElsewhere",
        [](MutatedDecoder& d, SpelledAttention& a) { d.expose(*a.weighing->operand(0)); },
        "value-escapes");
    add(
        "ScoresUsedElsewhere",
        [](MutatedDecoder& d, SpelledAttention& a) { d.expose(a.scores->result()); },
        "value-escapes");
    add(
        "MaskedScoresUsedElsewhere",
        [](MutatedDecoder& d, SpelledAttention& a) { d.expose(a.masking->result()); },
        "value-escapes");
    add(
        "ScaleFromData",
        [](MutatedDecoder& d, SpelledAttention& a) {
          Value& factor = d.dataDependentScalar();
          d.wrapOperand(*a.masking, 0, [&](Value& scaled) -> Value& {
            return d.add("Mul", {&scaled, &factor});
          });
        },
        "scale-not-constant");
    add(
        "ScalePerHeadAfterMask",
        [](MutatedDecoder& d, SpelledAttention& a) {
          Value& factors = d.add("Reshape", {&d.floats({1, 2, 3, 4}), &d.integers({1, 4, 1, 1})});
          d.wrapOperand(*a.softmax, 0, [&](Value& masked) -> Value& {
            return d.add("Mul", {&masked, &factors});
          });
        },
        "scale-not-constant");
    add(
        "MaskMultiplied",
        [](MutatedDecoder& d, SpelledAttention& a) { replaceOperator(d, *a.masking, "Mul"); },
        "scale-not-constant");
    add(
        "MaskedScoresSubtracted",
        [](MutatedDecoder& d, SpelledAttention& a) {
          d.wrapOperand(*a.softmax, 0, [&](Value& masked) -> Value& {
            return d.add("Sub", {&d.number(0), &masked});
          });
        },
        "pattern-mismatch");
    add(
        "TanhAfterMask",
        [](MutatedDecoder& d, SpelledAttention& a) {
          d.wrapOperand(*a.softmax, 0, [&](Value& masked) -> Value& {
            return d.add("Mul",
                         {&d.add("Tanh", {&d.add("Div", {&masked, &d.number(5)})}), &d.number(5)});
          });
        },
        "score-function");
    add(
        "SigmoidOnScores",
        [](MutatedDecoder& d, SpelledAttention& a) {
          d.wrapOperand(*a.masking, 0,
                        [&](Value& scaled) -> Value& { return d.add("Sigmoid", {&scaled}); });
        },
        "score-function");
    add(
        "BiasAfterSoftmax",
        [](MutatedDecoder& d, SpelledAttention& a) {
          d.wrapOperand(*a.weighing, 0, [&](Value& probabilities) -> Value& {
            return d.add("Add", {&probabilities, &d.number(0.25)});
          });
        },
        "pattern-mismatch");
    add(
        "ProbabilitiesSquared",
        [](MutatedDecoder& d, SpelledAttention& a) {
          d.wrapOperand(*a.weighing, 0, [&](Value& probabilities) -> Value& {
            return d.add("Mul", {&probabilities, &probabilities});
          });
        },
        "probabilities-changed");
    add(
        "SoftmaxInHalfPrecision",
        [](MutatedDecoder& d, SpelledAttention& a) {
          d.wrapOperand(*a.softmax, 0, [&](Value& masked) -> Value& {
            return castTo(d, castTo(d, masked, ElementType::Float16), ElementType::Float);
          });
        },
        "dtype-mix");
    add(
        "FillThatDoesNotMask",
        [](MutatedDecoder& d, SpelledAttention& a) {
          Value& mask = *a.masking->operand(1);
          d.wrapOperand(*a.softmax, 0, [&](Value& masked) -> Value& {
            Value& keep = d.add("Less", {&d.number(-1), &mask});
            return d.add("Where", {&keep, &masked, &d.number(-3)});
          });
        },
        "mask-fill-inexact");
    add(
        "GuardThatGivesOnes",
        [](MutatedDecoder& d, SpelledAttention& a) {
          d.wrapOperand(*a.weighing, 0, [&](Value& probabilities) -> Value& {
            Value& isNan = d.add("IsNaN", {&probabilities});
            return d.add("Where", {&isNan, &d.number(1), &probabilities});
          });
        },
        "pattern-mismatch");
    add(
        "SoftmaxTwice",
        [](MutatedDecoder& d, SpelledAttention& a) {
          d.wrapOperand(*a.masking, 0, [&](Value& scaled) -> Value& {
            return d.add("LogSoftmax", {&scaled}, MutatedDecoder::attributeList("axis", -2));
          });
        },
        "pattern-mismatch");
    add(
        "ScoresAddedToThemselves",
        [](MutatedDecoder& d, SpelledAttention& a) {
          d.wrapResult(*a.scores, [&](Value& scores) -> Value& {
            return d.add("Add", {&scores, &scores});
          });
        },
        "cache-escapes");
  }
  return list;
}

class NearMissScoresTest : public NearMissTest {};

TEST_P(NearMissScoresTest, IsRefusedWithItsReasonAndLeftAsItWas) { expectRefusedAndLeftAsItWas(); }

INSTANTIATE_TEST_SUITE_P(Mutations, NearMissScoresTest, testing::ValuesIn(scoreMutations()),
                         nearMissName);

} // namespace
} // namespace kvopt
