// Sizes of steps, and the inputs for them.
#include "passes/analysis/evaluation/step_points.h"

#include "ir/manifest/documented_inputs.h"
#include "ir/manifest/fed_length.h"
#include "ir/shapes/shape_rules.h"
#include "passes/analysis/interface/decoder_extents.h"
#include "passes/analysis/interface/input_roles.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Maximum number of elements of an input that is fed.
constexpr int64_t mostFed = int64_t{1} << 18;

bool isIntegerOrBool(const Value& value) {
  const ElementType element = value.type().elementType();
  return isInteger(element) || element == ElementType::Bool;
}

/// Whether an input is fed with integers; 8-bit integers with three or more axes are codes of
/// numbers.
bool isFed(const Value& input) {
  const TensorType& type = input.type();
  const bool isCodes =
      type.hasRank() && type.rank() >= 3 &&
      (type.elementType() == ElementType::Int8 || type.elementType() == ElementType::UInt8);
  return type.hasRank() && isIntegerOrBool(input) && !isCodes;
}

/// Number of rows in a past cache and number of rows that its output has in addition, on the one
/// axis on which their extents differ; nullopt for other types.
std::optional<std::pair<Dim, Dim>> grownRows(const TensorType& past, const TensorType& present) {
  if (!past.hasRank() || !present.hasRank() || past.rank() < 3 || past.rank() != present.rank() ||
      past.elementType() != present.elementType())
    return std::nullopt;
  std::optional<std::pair<Dim, Dim>> rows;
  for (unsigned axis = 0; axis < past.rank(); ++axis) {
    const Dim& before = past.shape()[axis];
    const Dim& after = present.shape()[axis];
    if (before.isKnownEqual(after))
      continue;
    const Dim added = after - before;
    const bool isGrown =
        before.symbols().size() == 1 && added.symbols().size() == 1 && added.isKnownNonNegative();
    if (rows || !isGrown)
      return std::nullopt;
    rows.emplace(before, added);
  }
  return rows;
}

} // namespace

StepPoints::StepPoints(const Graph& graph, const InterfaceFacts& facts) : evaluated(graph) {
  Manifest described;
  describeInputs(graph, facts, described);
  for (const auto& input : graph.inputs()) {
    if (!isFed(*input) || input->constant())
      continue;
    FedInput fed;
    fed.input = input.get();
    if (const DocumentedInput* documented = documentedInput(*input))
      fed.feed = documented->feed;
    for (const ManifestInput& entry : described.inputs)
      if (entry.input == input->name())
        std::tie(fed.feed, fed.numbers) = std::tie(entry.feed, entry.numbers);
    for (const ManifestLength& entry : described.lengths)
      if (entry.input == input->name())
        fed.length = entry.feed;
    fedInputs.push_back(fed);
  }
  findSymbols();
}

namespace {

void note(const Dim& dim, llvm::SmallVector<std::string, 4>& symbols,
          std::optional<int64_t>& fixed) {
  fixed = dim.value();
  for (const std::string& symbol : dim.symbols())
    if (!llvm::is_contained(symbols, symbol))
      symbols.push_back(symbol);
}

} // namespace

void StepPoints::findSymbols() {
  auto extents = findDecoderExtents(evaluated);
  if (const auto* found = std::get_if<DecoderExtents>(&extents)) {
    note(found->batch, batchSymbols, fixedBatch);
    note(found->tokens, tokenSymbols, fixedTokens);
    if (found->hasPast())
      note(found->past, pastSymbols, fixedPast);
    grows = found->hasPast();
  } else {
    for (const FedInput& fed : fedInputs) {
      if (fed.feed != InputFeed::Tokens || fed.input->type().rank() < 2)
        continue;
      note(fed.input->type().dim(0), batchSymbols, fixedBatch);
      note(fed.input->type().dim(1), tokenSymbols, fixedTokens);
    }
  }
  // If data flow does not show the growth of a cache, types may: an output with more rows.
  for (const auto& input : evaluated.inputs())
    for (const Value* output : evaluated.outputs())
      if (const auto rows = grownRows(input->type(), output->type()); rows && !grows) {
        note(rows->first, pastSymbols, fixedPast);
        note(rows->second, tokenSymbols, fixedTokens);
        if (batchSymbols.empty() && !fixedBatch)
          note(input->type().dim(0), batchSymbols, fixedBatch);
        grows = true;
      }
  if (!grows)
    findPastAlone();
  if (grows)
    findKeySymbols();
  for (const auto& input : evaluated.inputs()) {
    if (!input->type().hasRank())
      continue;
    for (const Dim& dim : input->type().shape())
      for (const std::string& symbol : dim.symbols())
        if (!isKnownSymbol(symbol))
          otherSymbols.push_back(symbol);
    if (!isFed(*input) && input->type().rank() >= 3)
      for (const Dim& dim : input->type().shape())
        capacity = std::max(capacity, dim.value().value_or(0));
  }
}

namespace {

/// Whether the types allow the output to be a larger cache: no fixed extents differ, and nothing is
/// known about the output's extent on the axis.
bool mayGrowTo(const TensorType& output, const TensorType& past, unsigned axis) {
  if (!output.hasRank() || output.rank() != past.rank() ||
      output.elementType() != past.elementType() || !isOpenExtent(output.dim(axis)))
    return false;
  for (unsigned i = 0; i < past.rank(); ++i)
    if (output.dim(i).isKnownDifferent(past.dim(i)))
      return false;
  return true;
}

} // namespace

/// Assumes that a past cache grows if an output could be its present and types do not exclude it:
/// its rows are neither batch rows nor tokens.
void StepPoints::findPastAlone() {
  for (const auto& input : evaluated.inputs()) {
    if (isFed(*input) || !input->type().hasRank() || input->type().rank() < 3)
      continue;
    const TensorType& type = input->type();
    for (unsigned axis = batchSymbols.empty() ? 1 : 0; axis < type.rank(); ++axis) {
      const Dim& dim = type.shape()[axis];
      const auto symbols = dim.symbols();
      if (symbols.size() != 1 || llvm::is_contained(batchSymbols, symbols.front()) ||
          llvm::is_contained(tokenSymbols, symbols.front()) ||
          llvm::none_of(evaluated.outputs(),
                        [&](const Value* output) { return mayGrowTo(output->type(), type, axis); }))
        continue;
      note(dim, pastSymbols, fixedPast);
      grows = true;
      return;
    }
  }
}

StepSize StepPoints::chosen(const StepSize& size) const {
  return {fixedBatch.value_or(size.batch), fixedTokens.value_or(size.tokens),
          fixedPast.value_or(size.past), size.others};
}

/// A mask has a column for each key, also if its extent has a different name.
void StepPoints::findKeySymbols() {
  for (const FedInput& fed : fedInputs) {
    const TensorType& type = fed.input->type();
    if ((fed.feed != InputFeed::VisibleKeys && fed.feed != InputFeed::HiddenKeys) ||
        type.rank() < 2)
      continue;
    const Dim& columns = type.shape().back();
    for (const std::string& symbol : columns.symbols())
      if (columns == Dim::symbol(symbol) && !isKnownSymbol(symbol))
        keySymbols.push_back(symbol);
  }
}

bool StepPoints::isKnownSymbol(llvm::StringRef symbol) const {
  return llvm::any_of(
      llvm::ArrayRef{&batchSymbols, &tokenSymbols, &pastSymbols, &keySymbols, &otherSymbols},
      [&](const auto* symbols) { return llvm::is_contained(*symbols, symbol); });
}

EvaluationPoint StepPoints::at(const StepSize& size) const {
  EvaluationPoint point;
  const StepSize chosen = this->chosen(size);
  for (const std::string& symbol : batchSymbols)
    point.extents[symbol] = chosen.batch;
  for (const std::string& symbol : tokenSymbols)
    point.extents[symbol] = chosen.tokens;
  for (const std::string& symbol : pastSymbols)
    point.extents[symbol] = chosen.past;
  for (const std::string& symbol : keySymbols)
    point.extents[symbol] = chosen.past + chosen.tokens;
  int64_t next = chosen.others;
  for (const std::string& symbol : otherSymbols) {
    point.extents[symbol] = next;
    // Steps that differ between sizes: no symbol is another one plus a number.
    next += 2 + chosen.others % 7;
  }
  for (const FedInput& fed : fedInputs) {
    Extents extents;
    for (const Dim& dim : fed.input->type().shape()) {
      const auto extent = dim.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
        const auto found = point.extents.find(symbol);
        return found == point.extents.end() ? std::nullopt : std::optional(found->second);
      });
      if (!extent || *extent < 0)
        break;
      extents.push_back(*extent);
    }
    // Inputs with too many elements to feed remain unknown.
    if (extents.size() != fed.input->type().rank() || !countOf(extents, mostFed))
      continue;
    if (fed.feed == InputFeed::Tokens)
      point.ids.push_back(fed.input);
    point.inputs[fed.input] = numbersFor(fed, chosen, point, std::move(extents));
  }
  return point;
}

NumberTensor StepPoints::numbersFor(const FedInput& fed, const StepSize& size,
                                    const EvaluationPoint&, Extents extents) const {
  NumberTensor tensor;
  const int64_t last = extents.empty() ? 1 : extents.back();
  const auto count = countOf(extents, mostFed).value_or(0);
  tensor.extents = std::move(extents);
  const std::optional<int64_t> length =
      fed.length ? fedLength(*fed.length, size.past, size.tokens) : std::nullopt;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t column = i % last;
    double number = 1;
    if (length)
      number = static_cast<double>(*length);
    else if (fed.feed == InputFeed::Constant)
      number = fed.numbers[static_cast<size_t>(i) % fed.numbers.size()];
    else if (fed.feed == InputFeed::Tokens)
      number = static_cast<double>(i % 3);
    else if (fed.feed == InputFeed::HiddenKeys || fed.feed == InputFeed::HiddenKeysAtEnd)
      number = 0;
    else if (fed.feed == InputFeed::BatchRows || fed.feed == InputFeed::KeyPositions)
      number = static_cast<double>(column);
    else if (fed.feed == InputFeed::Positions || fed.feed == InputFeed::Slots ||
             (fed.feed == InputFeed::Any && last == size.tokens))
      number = static_cast<double>(size.past + column);
    tensor.numbers.push_back(number);
  }
  return tensor;
}

std::vector<StepSize> StepPoints::sizes() const {
  std::vector<StepSize> sizes;
  if (grows || capacity == 0) {
    sizes = {{2, 5, 11, 17}, {3, 7, 4, 23}, {2, 3, 13, 29}, {3, 13, 0, 19}, {1, 1, 1, 31},
             {2, 1, 6, 37},  {1, 2, 8, 41}, {4, 6, 3, 43},  {5, 4, 10, 47}};
    return sizes;
  }
  for (const StepSize& size : {StepSize{2, 3, 4, 17}, StepSize{3, 2, 5, 23}, StepSize{2, 4, 2, 29},
                               StepSize{3, 3, 0, 19}, StepSize{1, 1, 1, 31}, StepSize{2, 1, 6, 37}})
    if (fixedTokens.value_or(size.tokens) + size.past <= capacity)
      sizes.push_back(size);
  return sizes;
}

} // namespace kvopt::analysis
