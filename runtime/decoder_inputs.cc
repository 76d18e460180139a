// Token ids, masks and positions by name.
#include "runtime/decoder_inputs.h"

#include "ir/diagnostic.h"

#include <algorithm>

namespace kvopt {

namespace {

llvm::Expected<Tensor> convert(const Value& input, llvm::ArrayRef<int64_t> shape,
                               llvm::ArrayRef<int64_t> values,
                               const std::shared_ptr<Allocator>& allocator) {
  ElementType element = input.type().elementType();
  if (input.type().hasRank() && input.type().rank() != shape.size())
    return unsupported("input '{}' has rank {}, not {}", input.name(), input.type().rank(),
                       shape.size());
  if (element != ElementType::Int64 && element != ElementType::Int32 &&
      element != ElementType::Bool && element != ElementType::Float)
    return unsupported("input '{}' is {}", input.name(), onnxName(element));
  if (element == ElementType::Int32)
    for (int64_t value : values)
      if (value < INT32_MIN || value > INT32_MAX)
        return invalid("input '{}' is int32 and cannot hold {}", input.name(), value);
  llvm::Expected<Tensor> tensor = Tensor::create(allocator, element, shape);
  if (!tensor)
    return tensor;
  const TensorView& view = tensor->view;
  if (element == ElementType::Int64)
    std::copy(values.begin(), values.end(), view.as<int64_t>());
  else if (element == ElementType::Int32)
    std::transform(values.begin(), values.end(), view.as<int32_t>(),
                   [](int64_t value) { return static_cast<int32_t>(value); });
  else if (element == ElementType::Bool)
    std::transform(values.begin(), values.end(), view.as<uint8_t>(),
                   [](int64_t value) { return static_cast<uint8_t>(value != 0); });
  else
    std::transform(values.begin(), values.end(), view.as<float>(),
                   [](int64_t value) { return static_cast<float>(value); });
  return tensor;
}

} // namespace

llvm::Expected<std::vector<DecoderInput>>
makeDecoderInputs(llvm::ArrayRef<const Value*> inputs, const DecoderStep& step,
                  const std::shared_ptr<Allocator>& allocator) {
  if (step.batch < 1 || step.newTokens < 1 || step.pastTokens < 0)
    return usageError("a step has a batch of {}, {} new and {} past tokens", step.batch,
                      step.newTokens, step.pastTokens);
  int64_t total = 0;
  int64_t maskSize = 0;
  if (__builtin_add_overflow(step.pastTokens, step.newTokens, &total) ||
      __builtin_mul_overflow(step.batch, total, &maskSize))
    return usageError("the step's size overflows");
  if (static_cast<int64_t>(step.tokens.size()) != step.batch * step.newTokens)
    return usageError("{} tokens are given for {} rows of {}", step.tokens.size(), step.batch,
                      step.newTokens);
  if (!step.real.empty() && static_cast<int64_t>(step.real.size()) != maskSize)
    return usageError("the padding mask has {} elements, not {}", step.real.size(), maskSize);

  std::vector<int64_t> mask(static_cast<size_t>(maskSize), 1);
  if (!step.real.empty())
    std::copy(step.real.begin(), step.real.end(), mask.begin());
  std::vector<int64_t> positions;
  for (int64_t row = 0; row < step.batch; ++row) {
    int64_t seen = 0;
    for (int64_t column = 0; column < total; ++column) {
      seen += mask[static_cast<size_t>(row * total + column)];
      if (column >= step.pastTokens)
        positions.push_back(std::max<int64_t>(seen - 1, 0));
    }
  }
  std::vector<int64_t> cachePositions;
  for (int64_t i = step.pastTokens; i < total; ++i)
    cachePositions.push_back(i);

  std::vector<DecoderInput> made;
  std::string unknown;
  for (const Value* input : inputs) {
    llvm::SmallVector<int64_t, 2> shape;
    llvm::ArrayRef<int64_t> values;
    if (input->name() == "input_ids") {
      shape = {step.batch, step.newTokens};
      values = step.tokens;
    } else if (input->name() == "attention_mask") {
      shape = {step.batch, total};
      values = mask;
    } else if (input->name() == "position_ids") {
      shape = {step.batch, step.newTokens};
      values = positions;
    } else if (input->name() == "cache_position") {
      shape = {step.newTokens};
      values = cachePositions;
    } else {
      unknown += unknown.empty() ? "" : ", ";
      unknown += fmt::format("'{}' ({})", input->name(), input->type().str());
      continue;
    }
    llvm::Expected<Tensor> tensor = convert(*input, shape, values, allocator);
    if (!tensor)
      return tensor.takeError();
    made.push_back({input->name().str(), std::move(*tensor)});
  }
  if (!unknown.empty())
    return unsupported("it is not known what to feed to {}", unknown);
  return made;
}

} // namespace kvopt
