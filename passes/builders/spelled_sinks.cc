// Follows a column of sinks back to one number per head.
#include "passes/builders/spelled_sinks.h"

#include "passes/analysis/movement/uniform_value.h"
#include "passes/builders/attention_builder.h"

namespace kvopt::builders {
using namespace analysis;
using namespace ir;
using namespace pattern;

SpelledSinks sinksOfNumber(std::optional<double> number, const Dim& heads) {
  constexpr int64_t mostHeads = 4096;
  std::optional<int64_t> count = heads.value();
  if (!number || !count || *count < 1 || *count > mostHeads)
    return {};
  return {nullptr, number, *count};
}

SpelledSinks sinksOfColumn(Value& column, const Dim& heads) {
  constexpr unsigned mostSteps = 4;
  Value* value = &column;
  for (unsigned step = 0; step < mostSteps && value; ++step) {
    const TensorType& type = value->type();
    if (type.hasRank() && type.rank() >= 3 && type.rank() <= 4 && type.dim(-1).value() == 1 &&
        type.dim(-2).value() == 1 && type.dim(-3).isKnownEqual(heads) &&
        (type.rank() == 3 || type.dim(0).value() == 1))
      return {value, std::nullopt, 0};
    Node* producer = value->producer();
    value = producer && producer->is("Expand") ? producer->operand(0) : nullptr;
  }
  return sinksOfNumber(uniformValue(column), heads);
}

Value& buildSinks(const SpelledSinks& sinks, Rewriter& rewriter) {
  if (sinks.number)
    return rewriter.constant("sinks",
                             floatTensor(std::vector<float>(static_cast<size_t>(sinks.heads),
                                                            static_cast<float>(*sinks.number))));
  AttentionBuilder builder(rewriter);
  return builder.castTo(builder.node("Reshape", {sinks.perHead, ints({-1})}, {}, "sinks"),
                        ElementType::Float);
}

} // namespace kvopt::builders
