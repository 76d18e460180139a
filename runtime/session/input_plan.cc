// Selection of values for inputs: recipes, descriptions, documented names.
#include "runtime/session/input_plan.h"

#include "ir/manifest/documented_inputs.h"
#include "support/diagnostic.h"
#include "support/nearest_word.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::runtime {
using namespace ir;

namespace {

using PlanKind = InputPlan::Kind;

bool isEncoderOutput(const Value& input) {
  return isFloatingPoint(input.type().elementType()) && input.type().hasRank() &&
         input.type().rank() >= 3;
}

template <class Entry> const Entry* findEntry(llvm::ArrayRef<Entry> entries, llvm::StringRef name) {
  for (const Entry& entry : entries)
    if (entry.input == name)
      return &entry;
  return nullptr;
}

const DocumentedInput* fedByName(const Value& input) {
  const DocumentedInput* documented = documentedInput(input);
  return documented && documented->feed != InputFeed::Any ? documented : nullptr;
}

/// Feed in the manifest's description; Any if there is none.
InputFeed describedFeed(const Value& input, llvm::ArrayRef<ManifestInput> described) {
  const ManifestInput* description = findEntry(described, input.name());
  return description ? description->feed : InputFeed::Any;
}

/// Whether a finite number can be converted to that element type.
bool holds(ElementType element, double number) {
  if (!isInteger(element))
    return true;
  const double limit = std::ldexp(1.0, static_cast<int>(bitWidth(element).value_or(8)) -
                                           (isUnsigned(element) ? 0 : 1));
  return number > (isUnsigned(element) ? -1.0 : -limit - 1.0) && number < limit;
}

/// Batch rows, then tokens; an axis of fixed extent counts codebooks.
std::vector<ManifestExtent> tokenShape(const TensorType& type) {
  std::vector<ManifestExtent> shape = {"batch", "new"};
  if (!type.hasRank() || type.rank() != 3 || type.dim(0).value())
    return shape;
  const unsigned axis = type.dim(1).value() ? 1 : 2;
  if (const std::optional<int64_t> codebooks = type.dim(axis).value())
    shape.insert(shape.begin() + axis, *codebooks);
  return shape;
}

/// Masks of static caches have their length.
ManifestExtent maskExtent(const Value& input) {
  if (input.type().hasRank() && input.type().rank() == 2)
    if (std::optional<int64_t> fixed = input.type().dim(1).value())
      return *fixed;
  return "total";
}

class Planner {
public:
  Planner(llvm::ArrayRef<InputRecipe> userRecipes, llvm::ArrayRef<ManifestInput> describedInputs)
      : recipes(userRecipes), described(describedInputs) {}

  llvm::Expected<InputPlan> plan(const Value& input) const {
    InputPlan made;
    made.input = &input;
    const ManifestInput* description = findEntry(described, input.name());
    if (description)
      made.shape = description->shape;
    made.isDeclared = !description;
    if (const InputRecipe* recipe = findEntry(recipes, input.name()))
      return byRecipe(std::move(made), *recipe);
    if (description && description->feed != InputFeed::Any)
      return byDescription(std::move(made), *description);
    if (const DocumentedInput* documented = fedByName(input))
      return byName(std::move(made), *documented);
    if (isEncoderOutput(input) || input.type().hasRank())
      return guessed(std::move(made));
    return unsupported("input '{}' is not one a decoder is usually fed", input.name())
        .hint("--input NAME=VALUE@EXTENTS says what to feed it");
  }

private:
  static InputPlan byFeed(InputPlan made, InputFeed feed) {
    made.kind = PlanKind::Feed;
    made.feed = feed;
    if (feed == InputFeed::Tokens)
      made.ids = tokenIdsOf(*made.input);
    return made;
  }

  static InputPlan byDescription(InputPlan made, const ManifestInput& description) {
    if (description.feed != InputFeed::Constant)
      return byFeed(std::move(made), description.feed);
    made.kind = PlanKind::Numbers;
    made.numbers = description.numbers;
    return made;
  }

  static InputPlan byNumber(InputPlan made, double number) {
    made.kind = PlanKind::Number;
    made.number = number;
    return made;
  }

  static InputPlan byName(InputPlan made, const DocumentedInput& documented) {
    const Value& input = *made.input;
    made.isDeclared = false;
    made.shape.clear();
    if (documented.feed == InputFeed::Tokens) {
      made.shape = tokenShape(input.type());
      return byFeed(std::move(made), documented.feed);
    }
    if (documented.feed == InputFeed::VisibleKeys || documented.rank != 1)
      made.shape.emplace_back("batch");
    if (input.name() == "encoder_attention_mask") {
      made.shape.emplace_back(encoderTokens);
      made.isMadeUp = true;
      return byNumber(std::move(made), 1);
    }
    made.shape.push_back(documented.feed == InputFeed::VisibleKeys ? maskExtent(input) : "new");
    return byFeed(std::move(made), documented.feed);
  }

  static InputPlan guessed(InputPlan made) {
    const ElementType element = made.input->type().elementType();
    made.isMadeUp = true;
    if (!isFloatingPoint(element))
      return byNumber(std::move(made), element == ElementType::Bool ? 1 : 0);
    made.kind = PlanKind::Random;
    return made;
  }

  static llvm::Expected<InputPlan> byRecipe(InputPlan made, const InputRecipe& recipe) {
    const Value& input = *made.input;
    if (recipe.hasShape) {
      made.shape = recipe.shape;
      made.isDeclared = false;
    } else if (made.isDeclared && !input.type().hasRank()) {
      return usageError("--input {}: the model does not declare the input's rank", input.name())
          .hint("add the extents, as in --input NAME=zeros@batch,new");
    }
    using Recipe = InputRecipe::Kind;
    switch (recipe.kind) {
    case Recipe::Feed:
      return byFeed(std::move(made), recipe.feed);
    case Recipe::Zeros:
    case Recipe::Ones:
      return byNumber(std::move(made), recipe.kind == Recipe::Ones ? 1 : 0);
    case Recipe::Random:
      made.kind = PlanKind::Random;
      return made;
    case Recipe::Range:
      made.kind = PlanKind::Range;
      return made;
    case Recipe::Length:
      made.kind = PlanKind::Length;
      made.length = recipe.length;
      return made;
    case Recipe::Numbers:
    case Recipe::State:
      break;
    }
    for (double number : recipe.numbers)
      if (!holds(input.type().elementType(), number))
        return usageError("--input {}: {} does not fit in the input's type {}", input.name(),
                          number, dtypeName(input.type().elementType()));
    made.kind = PlanKind::Numbers;
    made.numbers = recipe.numbers;
    return made;
  }

  llvm::ArrayRef<InputRecipe> recipes;
  llvm::ArrayRef<ManifestInput> described;
};

} // namespace

int64_t slotsOf(const Manifest& manifest) {
  int64_t slots = 0;
  for (const ManifestCache& cache : manifest.caches)
    if (cache.update() == CacheUpdate::Ring || cache.update() == CacheUpdate::Static)
      if (const auto rows = cache.fixedRows(); rows && (slots == 0 || *rows < slots))
        slots = *rows;
  return slots;
}

bool InputPlan::isWord(size_t axis, llvm::StringRef word) const {
  if (isDeclared || axis >= shape.size())
    return false;
  const auto* text = std::get_if<std::string>(&shape[axis]);
  return text && *text == word;
}

llvm::Expected<DecoderPlan> DecoderPlan::create(llvm::ArrayRef<const Value*> inputs,
                                                llvm::ArrayRef<InputRecipe> recipes,
                                                llvm::ArrayRef<ManifestInput> described,
                                                int64_t slots) {
  std::vector<std::string> known;
  for (const Value* input : inputs)
    known.push_back(input->name().str());
  for (const InputRecipe& recipe : recipes)
    if (recipe.kind != InputRecipe::Kind::State && !llvm::is_contained(known, recipe.input))
      return usageError("--input {}: the model has no such input besides caches{}", recipe.input,
                        didYouMean(recipe.input, known));
  DecoderPlan made;
  made.slots = slots;
  const Planner planner(recipes, described);
  for (const Value* input : inputs) {
    if (isTokenInput(*input, described) && input->type().hasRank()) {
      made.tokenType = &input->type();
      made.rowsPerBatch = tokenIdsOf(*input).rowsPerBatch;
    }
    llvm::Expected<InputPlan> planned = planner.plan(*input);
    if (!planned)
      return planned.takeError();
    made.noteLaterSymbols(*planned);
    made.inputs.push_back(std::move(*planned));
  }
  return made;
}

void DecoderPlan::noteLaterSymbols(const InputPlan& input) {
  if (input.isDeclared)
    for (size_t axis = 1; axis < input.input->type().rank(); ++axis)
      for (const std::string& symbol : input.input->type().shape()[axis].symbols())
        laterSymbols.insert(symbol);
  for (size_t axis = 1; axis < input.shape.size(); ++axis)
    if (const auto* word = std::get_if<std::string>(&input.shape[axis]))
      laterSymbols.insert(*word);
}

std::vector<std::string> DecoderPlan::madeUp() const {
  std::vector<std::string> names;
  for (const InputPlan& input : inputs)
    if (input.isMadeUp)
      names.push_back(input.input->name().str());
  return names;
}

Extents DecoderPlan::extents(const InputPlan& input, const DecoderStep& step) const {
  return input.isDeclared ? declaredExtents(*input.input, step)
                          : describedExtents(input.shape, step);
}

Extents DecoderPlan::describedExtents(llvm::ArrayRef<ManifestExtent> shape,
                                      const DecoderStep& step) const {
  Extents result;
  for (const ManifestExtent& extent : shape) {
    if (const auto* fixed = std::get_if<int64_t>(&extent)) {
      result.push_back(*fixed);
      continue;
    }
    const std::string& word = std::get<std::string>(extent);
    const bool isBatch = word == "batch" || (result.empty() && !laterSymbols.contains(word));
    result.push_back(word == "new"     ? step.newTokens()
                     : word == "past"  ? step.pastLength
                     : word == "total" ? step.total()
                     : isBatch         ? step.batch()
                                       : encoderTokens);
  }
  return result;
}

/// Value of a symbol that the token ids' type determines.
int64_t DecoderPlan::symbolValue(llvm::StringRef symbol, const DecoderStep& step) const {
  if (tokenType)
    for (unsigned axis = 0; axis < std::min(2u, tokenType->rank()); ++axis)
      if (tokenType->shape()[axis] == Dim::symbol(symbol))
        return axis == 0 ? step.batch() * rowsPerBatch : step.newTokens();
  return encoderTokens;
}

Extents DecoderPlan::declaredExtents(const Value& input, const DecoderStep& step) const {
  Extents shape;
  for (const Dim& extent : input.type().shape()) {
    // The first axis is batch rows, whatever its name is, unless another input has it elsewhere.
    const bool isShared = llvm::any_of(
        extent.symbols(), [&](const std::string& symbol) { return laterSymbols.contains(symbol); });
    if (shape.empty() && !extent.value() && !isShared) {
      shape.push_back(step.batch());
      continue;
    }
    if (shape.size() == 1 && input.name() == "inputs_embeds") {
      shape.push_back(step.newTokens());
      continue;
    }
    auto known = extent.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
      return symbolValue(symbol, step);
    });
    shape.push_back(known.value_or(encoderTokens));
  }
  return shape;
}

std::vector<std::string> guessedInputs(llvm::ArrayRef<const Value*> inputs,
                                       llvm::ArrayRef<InputRecipe> recipes,
                                       llvm::ArrayRef<ManifestInput> described) {
  std::vector<std::string> names;
  for (const Value* input : inputs)
    if (!findEntry(recipes, input->name()) && describedFeed(*input, described) == InputFeed::Any &&
        !fedByName(*input) && !isEncoderOutput(*input))
      names.push_back(input->name().str());
  return names;
}

bool hidesPositions(const Value& input, llvm::ArrayRef<ManifestInput> described) {
  const ManifestInput* description = findEntry(described, input.name());
  if (!description || description->feed == InputFeed::Any)
    return input.name() != "encoder_attention_mask" && documentedInput(input) &&
           documentedInput(input)->feed == InputFeed::VisibleKeys;
  return isMaskFeed(description->feed) && description->shape.size() >= 2 &&
         description->shape.front() == ManifestExtent("batch");
}

} // namespace kvopt::runtime
