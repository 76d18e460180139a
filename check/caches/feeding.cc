// Contents of inputs.
#include "check/caches/feeding.h"

#include "check/arithmetic/call.h"
#include "check/caches/block_table.h"
#include "ir/manifest/documented_inputs.h"
#include "ir/manifest/fed_length.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

namespace kvopt::check {
using ir::InputFeed;

namespace {

std::vector<int64_t> visibleKeys(const Step& step) {
  std::vector<int64_t> mask;
  for (int64_t row = 0; row < step.batch; ++row)
    for (int64_t token = 0; token < step.total(); ++token)
      mask.push_back(!step.isHidden(row, token));
  return mask;
}

std::vector<int64_t> positions(const Step& step) {
  std::vector<int64_t> result;
  for (int64_t row = 0; row < step.batch; ++row) {
    int64_t seen = 0;
    for (int64_t token = 0; token < step.total(); ++token) {
      seen += !step.isHidden(row, token);
      if (token >= step.past)
        result.push_back(std::max<int64_t>(seen - 1, 0));
    }
  }
  return result;
}

/// Integers as the element type of an input, with one growth.
Ref typed(Extents shape, std::vector<int64_t> values, ir::ElementType type,
          GrowthId growth = fixedGrowth) {
  auto result = std::make_shared<Tensor>();
  result->shape = std::move(shape);
  result->type = type;
  if (growth != fixedGrowth)
    result->growths.assign(values.size(), growth);
  if (ir::isFloatingPoint(type)) {
    result->kind = Kind::Known;
    result->known.assign(values.begin(), values.end());
  } else {
    result->kind = Kind::Integer;
    result->integers = std::move(values);
  }
  return result;
}

/// Integers that no size determines, each another one.
GrowthId anyOf(Growths& growths, const std::string& name) {
  Growth any = growths.at(growths.data(name));
  any.rises = any.falls = 1;
  return growths.keep(std::move(any));
}

/// The positions of tokens, which count up from the past, less those of hidden ones.
GrowthId positionGrowth(Growths& growths, const Step& step) {
  const GrowthId position = growths.indexed(growths.size(GrowingSize::Past), 0, 1);
  if (step.padding == 0)
    return position;
  const GrowthId hidden = growths.data("hidden tokens");
  return growths.bound({growths.sum({position, 0}, {hidden, 0}, -1), 0}, {fixedGrowth, 0}, true);
}

/// A step with other sizes.
Step moved(Step step, GrowingSize size, int64_t by) {
  (size == GrowingSize::Batch    ? step.batch
   : size == GrowingSize::Past   ? step.past
   : size == GrowingSize::Tokens ? step.tokens
                                 : step.spare) += by;
  return step;
}

constexpr GrowingSize stepSizes[] = {GrowingSize::Batch, GrowingSize::Past, GrowingSize::Tokens,
                                     GrowingSize::Free};

/// The growth of a number of a step: a sum of multiples of its sizes, or else an independent one,
/// which `name` identifies. `numberOf` gives the number in a step; nullopt if it has none.
GrowthId bySizes(Growths& growths, const Step& step, const std::string& name,
                 llvm::function_ref<std::optional<int64_t>(const Step&)> numberOf) {
  const std::optional<int64_t> own = numberOf(step);
  Growths::Number total{fixedGrowth, 0};
  double rest = double(own.value_or(0));
  for (GrowingSize size : stepSizes) {
    const auto larger = numberOf(moved(step, size, 1)), largest = numberOf(moved(step, size, 2));
    const auto smaller = numberOf(moved(step, size, -1));
    if (!own || (!larger && !smaller))
      return growths.data(name);
    const int64_t each = larger ? *larger - *own : *own - *smaller;
    if (larger && largest && *largest - *larger != each)
      return growths.data(name);
    const int64_t now = size == GrowingSize::Batch    ? step.batch
                        : size == GrowingSize::Past   ? step.past
                        : size == GrowingSize::Tokens ? step.tokens
                                                      : step.spare;
    if (each != 0)
      total.id = growths.sum(total, {growths.size(size, double(each)), 0});
    rest -= double(each * now);
  }
  return total.id == fixedGrowth ? total.id : growths.sum(total, {fixedGrowth, rest});
}

/// Consecutive numbers.
std::vector<int64_t> counted(int64_t first, int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

/// The ids of a step's tokens. The first one of each batch row is the step's own token, if it has
/// one.
std::vector<int64_t> tokenIds(int64_t count, const Step& step) {
  std::vector<int64_t> ids;
  constexpr int64_t vocabulary = 31;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back((i * 7 + 3 + 5 * step.past) % vocabulary);
  const int64_t inRow = count / std::max<int64_t>(step.batch, 1);
  for (int64_t i = 0; step.token >= 0 && i < count; i += std::max<int64_t>(inRow, 1))
    ids[static_cast<size_t>(i)] = step.token;
  return ids;
}

} // namespace

Ref arbitraryTensor(const Field& field, uint64_t name, const Extents& shape) {
  auto result = std::make_shared<Tensor>();
  result->shape = shape;
  const auto count = static_cast<uint64_t>(result->count());
  const uint64_t start = mixBits(name);
  result->reals.reserve(count);
  for (uint64_t i = 0; i < count; ++i)
    result->reals.push_back(field.arbitrary(start + i));
  return result;
}

Feeding::Feeding(DrivenModel before, DrivenModel after)
    : original(before), second(after), caches(before, after) {}

Ref Feeding::lengthInput(const ir::Manifest& manifest, const ir::ManifestLength& length,
                         ir::ElementType type, const Step& step, Growths& growths) {
  const auto value = ir::fedLength(length.feed, step.past, step.tokens);
  if (!value) {
    const auto table = BlockTable::of(manifest, step, reason);
    if (!table)
      return nullptr;
    std::vector<int64_t> blocks;
    for (int64_t row = 0; row < table->batch(); ++row)
      for (int64_t index = 0; index < table->columns(); ++index)
        blocks.push_back(table->block(row, index));
    return typed({table->batch(), table->columns()}, std::move(blocks), type,
                 anyOf(growths, length.input));
  }
  Extents shape;
  for (const ir::ManifestExtent& written : length.shape)
    shape.push_back(std::holds_alternative<int64_t>(written) ? std::get<int64_t>(written)
                                                             : step.batch);
  const auto count = static_cast<size_t>(std::max<int64_t>(elementCount(shape), 0));
  const GrowthId growth = bySizes(growths, step, length.input, [&](const Step& other) {
    return ir::fedLength(length.feed, other.past, other.tokens);
  });
  return typed(shape, std::vector<int64_t>(count, *value), type, growth);
}

namespace {

std::string constancyOf(const ir::Value& input, llvm::ArrayRef<double> numbers) {
  return formatted("the input '{}' is {}", input.name(), joinedText(numbers, ", "));
}

std::vector<int64_t> repeatedly(llvm::ArrayRef<double> numbers, int64_t count) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<int64_t>(numbers[static_cast<size_t>(i) % numbers.size()]));
  return values;
}

} // namespace

/// The numbers of an input that either manifest says is constant.
llvm::ArrayRef<double> Feeding::constantOf(const ir::Value& input) const {
  for (const DrivenModel* side : {&original, &second})
    for (const ir::ManifestInput& described : side->manifest.inputs)
      if (described.input == input.name() && described.feed == InputFeed::Constant)
        return described.numbers;
  return {};
}

Ref Feeding::plainInput(const DrivenModel& side, const ir::Value& input, const Step& step,
                        Arithmetic& math) {
  const ir::ElementType type = input.type().elementType();
  auto extent = [&](const ir::ManifestExtent& written) -> int64_t {
    if (const auto* fixed = std::get_if<int64_t>(&written))
      return *fixed;
    const std::string& word = std::get<std::string>(written);
    if (word == "batch")
      return step.batch;
    if (word == "new")
      return step.tokens;
    if (word == "past")
      return step.past;
    if (word == "total")
      return step.total();
    return extentOf(ir::Dim::symbol(word), step).value_or(otherExtent(step));
  };
  for (const ir::ManifestLength& length : side.manifest.lengths)
    if (length.input == input.name())
      return lengthInput(side.manifest, length, type, step, math.growths);
  Extents shape;
  InputFeed feed = InputFeed::Any;
  bool isDescribed = false;
  for (const ir::ManifestInput& described : side.manifest.inputs)
    if (described.input == input.name()) {
      feed = described.feed;
      isDescribed = true;
      for (const ir::ManifestExtent& written : described.shape)
        shape.push_back(extent(written));
    }
  if (!isDescribed) {
    const ir::DocumentedInput* known = ir::documentedInput(input);
    if (known)
      feed = known->feed;
    for (size_t i = 0; input.type().hasRank() && i < input.type().rank(); ++i)
      shape.push_back(known && known->axes[i] == ir::DocumentedExtent::AllTokens
                          ? step.total()
                          : extentOf(input.type().shape()[i], step).value_or(otherExtent(step)));
  }
  const int64_t count = elementCount(shape);
  if (count < 0) {
    reason = "the input '" + input.name().str() + "' is too large";
    return nullptr;
  }
  if (const auto numbers = constantOf(input); !numbers.empty() && ir::isInteger(type)) {
    math.assumptions.insert(constancyOf(input, numbers));
    return typed(shape, repeatedly(numbers, count), type);
  }
  // A mask may have axes of extent 1 between batch and keys.
  auto repeated = [&](std::vector<int64_t> values, GrowthId growth = fixedGrowth) -> Ref {
    const bool fits = static_cast<int64_t>(values.size()) == count;
    if (fits)
      return typed(shape, std::move(values), type, growth);
    if (!shape.empty() && !values.empty() && count % static_cast<int64_t>(values.size()) == 0 &&
        step.batch == 1) {
      std::vector<int64_t> all;
      while (static_cast<int64_t>(all.size()) < count)
        all.insert(all.end(), values.begin(), values.end());
      return typed(shape, std::move(all), type, growth);
    }
    reason = "the shape of the input '" + input.name().str() + "' does not fit its role";
    return nullptr;
  };
  switch (feed) {
  case InputFeed::Tokens: {
    auto tokens = std::make_shared<Tensor>(
        *typed(shape, tokenIds(count, step), type, anyOf(math.growths, input.name().str())));
    tokens->isToken = true;
    return tokens;
  }
  case InputFeed::Positions:
    if (shape.size() <= 1)
      return typed(shape, counted(step.past, count), type,
                   positionGrowth(math.growths, {.past = step.past}));
    return repeated(positions(step), positionGrowth(math.growths, step));
  case InputFeed::VisibleKeys:
    if (isMaskOfOtherRows(input))
      return typed(shape, std::vector<int64_t>(static_cast<size_t>(count), 1), type);
    return repeated(visibleKeys(step));
  case InputFeed::HiddenKeys: {
    std::vector<int64_t> values = visibleKeys(step);
    for (int64_t& value : values)
      value = !value;
    return repeated(std::move(values));
  }
  case InputFeed::BatchRows:
    return typed(shape, counted(0, count), type, math.growths.indexed(fixedGrowth, 0, 1));
  case InputFeed::AdditiveMask:
  case InputFeed::VisibleKeysAtEnd:
  case InputFeed::HiddenKeysAtEnd:
  case InputFeed::AdditiveMaskAtEnd:
  case InputFeed::Slots:
  case InputFeed::KeyPositions:
  case InputFeed::Segments:
    reason = "the role of the input '" + input.name().str() + "' is not modelled";
    return nullptr;
  case InputFeed::Constant:
  case InputFeed::Any:
    break;
  }
  if (ir::isFloatingPoint(type))
    return arbitraryTensor(math.field, nameHash(input.name()), shape);
  math.assumptions.insert("the input '" + input.name().str() + "' is " +
                          (type == ir::ElementType::Bool ? "whether there is a past" : "zero"));
  const int64_t value = type == ir::ElementType::Bool && step.past > 0;
  const GrowthId growth =
      type == ir::ElementType::Bool ? fixedGrowth : anyOf(math.growths, input.name().str());
  return typed(shape, std::vector<int64_t>(static_cast<size_t>(count), value), type, growth);
}

std::optional<InputFeed> Feeding::feedOf(bool isAfter, const ir::Value& input) const {
  const DrivenModel& side = isAfter ? second : original;
  if (cacheInput(isAfter, input) ||
      llvm::any_of(side.manifest.lengths,
                   [&](const ir::ManifestLength& length) { return length.input == input.name(); }))
    return std::nullopt;
  auto described = llvm::find_if(side.manifest.inputs, [&](const ir::ManifestInput& entry) {
    return entry.input == input.name();
  });
  if (described != side.manifest.inputs.end())
    return described->feed;
  const ir::DocumentedInput* known = ir::documentedInput(input);
  return known ? known->feed : InputFeed::Any;
}

std::string Feeding::assumptionOfInput(bool isAfter, const ir::Value& input) const {
  const std::optional<InputFeed> feed = feedOf(isAfter, input);
  if (feed == InputFeed::Positions)
    return "the input '" + input.name().str() +
           "' counts the tokens of each row that are not hidden";
  if ((feed == InputFeed::VisibleKeys || feed == InputFeed::HiddenKeys) &&
      !isMaskOfOtherRows(input))
    return "the input '" + input.name().str() + "' hides tokens on one side of a row only";
  return "";
}

std::string Feeding::gapOfInput(bool isAfter, const ir::Value& input) const {
  const std::optional<InputFeed> feed = feedOf(isAfter, input);
  if (ir::isFloatingPoint(input.type().elementType()) || !feed)
    return "";
  if (feed == InputFeed::Any)
    return "the role of the input '" + input.name().str() +
           "' is unknown, so that not all of its values are compared";
  if (feed == InputFeed::BatchRows)
    return "the input '" + input.name().str() + "' keeps the order of the rows of a batch";
  if (feed == InputFeed::VisibleKeys && isMaskOfOtherRows(input))
    return "the input '" + input.name().str() + "' hides no position";
  return "";
}

Ref Feeding::contents(bool isAfter, const ir::Value& input, const Step& step, Arithmetic& math) {
  const CacheInput* known = cacheInput(isAfter, input);
  const Ref held = known ? caches.of(*known, step, math)
                         : plainInput(isAfter ? second : original, input, step, math);
  if (!held && known)
    reason = caches.failure();
  if (!held)
    return nullptr;
  auto growing = std::make_shared<Tensor>(*held);
  growing->extentGrowths = extentGrowths(isAfter, input, step, math);
  return growing;
}

GrowthId Feeding::growthOf(const ir::Dim& dim, const Step& step, Arithmetic& math) const {
  return bySizes(math.growths, step, "a declared extent",
                 [&](const Step& other) { return extentOf(dim, other); });
}

std::optional<Extents> Feeding::shapeOf(bool isAfter, const ir::Value& input, const Step& step,
                                        Arithmetic& math) {
  if (step.batch < 1 || step.past < 0 || step.tokens < 1 || step.spare < 0)
    return std::nullopt;
  const CacheInput* known = cacheInput(isAfter, input);
  const Ref held = known ? caches.places(*known, step)
                         : plainInput(isAfter ? second : original, input, step, math);
  return held ? std::optional(held->shape) : std::nullopt;
}

llvm::SmallVector<GrowthId, 4> Feeding::extentGrowths(bool isAfter, const ir::Value& input,
                                                      const Step& step, Arithmetic& math) {
  const std::array<int64_t, 6> sizes{step.batch, step.past,    step.tokens,
                                     step.spare, step.padding, step.padsRight};
  const CacheInput* cache = cacheInput(isAfter, input);
  const auto key =
      std::make_tuple(isAfter, cache ? cache->form : reinterpret_cast<uintptr_t>(&input), sizes);
  if (const auto known = extents.find(key); known != extents.end())
    return known->second;
  const std::string failure = reason;
  const auto own = shapeOf(isAfter, input, step, math);
  llvm::SmallVector<GrowthId, 4> ids;
  std::map<std::array<int64_t, 4>, std::optional<Extents>> shapes;
  for (size_t axis = 0; own && axis < own->size(); ++axis) {
    const ir::TensorType& type = input.type();
    const auto symbols = type.hasRank() && axis < type.rank()
                             ? type.shape()[axis].symbols()
                             : decltype(type.shape()[axis].symbols()){};
    const std::string name = symbols.size() == 1 ? "extent " + std::string(symbols[0])
                                                 : input.name().str() + " " + std::to_string(axis);
    ids.push_back(
        bySizes(math.growths, step, name, [&](const Step& other) -> std::optional<int64_t> {
          auto [shape, isFirst] =
              shapes.try_emplace({other.batch, other.past, other.tokens, other.spare});
          if (isFirst)
            shape->second = shapeOf(isAfter, input, other, math);
          return shape->second && axis < shape->second->size()
                     ? std::optional((*shape->second)[axis])
                     : std::nullopt;
        }));
  }
  if (llvm::all_of(ids, [](GrowthId id) { return id == fixedGrowth; }))
    ids.clear();
  reason = failure;
  return extents[key] = ids;
}

bool Feeding::readsCodes(llvm::ArrayRef<const ir::Node*> nodes) const {
  return caches.pairs().haveCodes() && readContents(nodes, [&](const ir::Value& value) {
           const CacheInput* held = cacheInput(true, value);
           return held && held->pair && held->pair->codes;
         });
}

bool readContents(llvm::ArrayRef<const ir::Node*> nodes,
                  llvm::function_ref<bool(const ir::Value&)> isMeant) {
  return llvm::any_of(nodes, [&](const ir::Node* node) {
    return !(node->op().isOnnx() && (node->is("Shape") || node->is("Size"))) &&
           llvm::any_of(node->operands(),
                        [&](const ir::Use& use) { return use.value() && isMeant(*use.value()); });
  });
}

} // namespace kvopt::check
