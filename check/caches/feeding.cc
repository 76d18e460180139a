// Contents of inputs.
#include "check/caches/feeding.h"

#include "check/arithmetic/call.h"
#include "check/caches/block_table.h"
#include "ir/manifest/documented_inputs.h"
#include "ir/manifest/fed_length.h"

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

/// Integers as the element type of an input.
Ref typed(Extents shape, std::vector<int64_t> values, ir::ElementType type, bool isToken = false) {
  auto result = std::make_shared<Tensor>();
  result->shape = std::move(shape);
  result->type = type;
  result->isToken = isToken;
  if (ir::isFloatingPoint(type)) {
    result->kind = Kind::Known;
    result->known.assign(values.begin(), values.end());
  } else {
    result->kind = Kind::Integer;
    result->integers = std::move(values);
  }
  return result;
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
                         ir::ElementType type, const Step& step) {
  const auto value = ir::fedLength(length.feed, step.past, step.tokens);
  if (!value) {
    const auto table = BlockTable::of(manifest, step, reason);
    if (!table)
      return nullptr;
    std::vector<int64_t> blocks;
    for (int64_t row = 0; row < table->batch(); ++row)
      for (int64_t index = 0; index < table->columns(); ++index)
        blocks.push_back(table->block(row, index));
    return typed({table->batch(), table->columns()}, std::move(blocks), type);
  }
  Extents shape;
  for (const ir::ManifestExtent& written : length.shape)
    shape.push_back(std::holds_alternative<int64_t>(written) ? std::get<int64_t>(written)
                                                             : step.batch);
  const auto count = static_cast<size_t>(std::max<int64_t>(elementCount(shape), 0));
  return typed(shape, std::vector<int64_t>(count, *value), type);
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
      return lengthInput(side.manifest, length, type, step);
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
  auto fits = [&](const std::vector<int64_t>& values) {
    return static_cast<int64_t>(values.size()) == count;
  };
  // A mask may have axes of extent 1 between batch and keys.
  auto repeated = [&](std::vector<int64_t> values) -> Ref {
    if (fits(values))
      return typed(shape, std::move(values), type);
    if (!shape.empty() && !values.empty() && count % static_cast<int64_t>(values.size()) == 0 &&
        step.batch == 1) {
      std::vector<int64_t> all;
      while (static_cast<int64_t>(all.size()) < count)
        all.insert(all.end(), values.begin(), values.end());
      return typed(shape, std::move(all), type);
    }
    reason = "the shape of the input '" + input.name().str() + "' does not fit its role";
    return nullptr;
  };
  switch (feed) {
  case InputFeed::Tokens: {
    std::vector<int64_t> ids;
    constexpr int64_t vocabulary = 31;
    for (int64_t i = 0; i < count; ++i)
      ids.push_back((i * 7 + 3 + 5 * step.past) % vocabulary);
    return typed(shape, std::move(ids), type, true);
  }
  case InputFeed::Positions:
    if (shape.size() == 1) {
      std::vector<int64_t> all(static_cast<size_t>(count));
      std::iota(all.begin(), all.end(), step.past);
      return typed(shape, std::move(all), type);
    }
    return repeated(positions(step));
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
  case InputFeed::BatchRows: {
    std::vector<int64_t> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), 0);
    return typed(shape, std::move(rows), type);
  }
  case InputFeed::AdditiveMask:
  case InputFeed::Segments:
    reason = "the role of the input '" + input.name().str() + "' is not modelled";
    return nullptr;
  case InputFeed::Any:
    break;
  }
  if (ir::isFloatingPoint(type))
    return arbitraryTensor(math.field, nameHash(input.name()), shape);
  math.assumptions.insert("the input '" + input.name().str() + "' is " +
                          (type == ir::ElementType::Bool ? "whether there is a past" : "zero"));
  const int64_t value = type == ir::ElementType::Bool && step.past > 0;
  return typed(shape, std::vector<int64_t>(static_cast<size_t>(count), value), type);
}

std::string Feeding::gapOfInput(bool isAfter, const ir::Value& input) const {
  const DrivenModel& side = isAfter ? second : original;
  if (ir::isFloatingPoint(input.type().elementType()) || cacheInput(isAfter, input) ||
      llvm::any_of(side.manifest.lengths,
                   [&](const ir::ManifestLength& length) { return length.input == input.name(); }))
    return "";
  InputFeed feed = InputFeed::Any;
  const ir::DocumentedInput* known = ir::documentedInput(input);
  auto described = llvm::find_if(side.manifest.inputs, [&](const ir::ManifestInput& entry) {
    return entry.input == input.name();
  });
  if (described != side.manifest.inputs.end())
    feed = described->feed;
  else if (known)
    feed = known->feed;
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
  if (!known)
    return plainInput(isAfter ? second : original, input, step, math);
  const Ref held = caches.of(*known, step, math);
  if (!held)
    reason = caches.failure();
  return held;
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
