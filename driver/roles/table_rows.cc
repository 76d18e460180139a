// Evaluation of indices at the first token.
#include "driver/roles/table_rows.h"

#include "ir/manifest/fed_length.h"
#include "passes/analysis/evaluation/step_points.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

namespace kvopt::driver {
using namespace analysis;
using namespace ir;

namespace {

/// The number of an input at the first token. nullopt for inputs that evaluation feeds, which are
/// neither floating-point numbers nor states, and for inputs of several elements.
std::optional<double> firstNumber(const RoleGuess& guess, const GivenRoles& roles) {
  const Value& input = *guess.input;
  for (const Dim& extent : input.type().shape())
    if (extent.value().value_or(1) != 1)
      return std::nullopt;
  for (const auto& [state, contents] : roles.states)
    if (state == input.name())
      return contents.front();
  if (llvm::any_of(guess.others,
                   [](const InputRole& role) { return std::holds_alternative<StateStart>(role); }))
    return 0;
  if (!isFloatingPoint(input.type().elementType()))
    return std::nullopt;
  for (const ManifestLength& length : roles.lengths)
    if (length.input == input.name())
      if (const auto number = fedLength(length.feed, /*past=*/0, /*tokens=*/1))
        return static_cast<double>(*number);
  for (const ManifestInput& entry : roles.inputs)
    if (entry.input == input.name() && entry.feed == InputFeed::Positions)
      return 0;
  return std::nullopt;
}

/// Whether a row of a table or the next one holds zeros, and the table does not.
bool isBeforeZeros(const TensorData& table, int64_t row) {
  if (table.shape().empty() || row < 0 || row + 1 >= table.shape()[0])
    return false;
  auto bytes = table.bytes();
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return false;
  }
  auto isZero = [](std::byte byte) { return byte == std::byte{0}; };
  const size_t size = bytes->size() / static_cast<size_t>(table.shape()[0]);
  const auto first = static_cast<size_t>(row) * size;
  return (llvm::all_of(bytes->subspan(first, size), isZero) ||
          llvm::all_of(bytes->subspan(first + size, size), isZero)) &&
         !llvm::all_of(*bytes, isZero);
}

} // namespace

std::optional<FirstRows> firstTableRows(const RecoveredModel& recovered, const GivenRoles& roles,
                                        llvm::ArrayRef<RoleGuess> guesses) {
  const Graph& graph = recovered.model->graph();
  InterfaceFacts facts = recovered.context->interface;
  facts.given = roles;
  EvaluationPoint first = StepPoints(graph, facts).at({.batch = 1, .tokens = 1, .past = 0});
  for (const RoleGuess& guess : guesses)
    if (const auto number = firstNumber(guess, roles))
      first.inputs[guess.input] = {Extents(guess.input->type().rank(), 1), {*number}};
  EvaluationPoint unknown = first;
  for (const RoleGuess& guess : guesses)
    unknown.inputs.erase(guess.input);
  Evaluation known(graph, first), others(graph, unknown);
  std::optional<FirstRows> found;
  for (const Node& node : graph.nodes()) {
    if (!node.is("Gather") || node.intAttr("axis", 0) != 0 || !node.operand(0) ||
        !node.operand(1) || !node.operand(0)->constantRef() ||
        !isFloatingPoint(node.operand(0)->type().elementType()))
      continue;
    const Value& index = *node.operand(1);
    const NumberTensor* rows = known.numbers(index);
    if (!rows || rows->numbers.empty() || others.numbers(index))
      continue;
    const double number = *std::min_element(rows->numbers.begin(), rows->numbers.end());
    constexpr double most = 0x1p53;
    if (!(std::abs(number) < most))
      continue;
    const auto lowest = static_cast<int64_t>(number);
    const bool isZero = isBeforeZeros(*node.operand(0)->constantRef(), lowest);
    found = found ? FirstRows{std::min(found->least, lowest), found->areReserved && isZero}
                  : FirstRows{lowest, isZero};
  }
  return found;
}

} // namespace kvopt::driver
