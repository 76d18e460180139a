// Building the inputs of a step.
#include "runtime/decoder_inputs.h"

#include "ir/diagnostic.h"
#include "ir/half.h"
#include "runtime/buffer.h"

#include "llvm/Support/xxhash.h"

#include <random>

namespace kvopt {
namespace {

constexpr int64_t mostMadeUpElements = int64_t{1} << 26;

class InputBuilder {
public:
  InputBuilder(const DecoderStep& decoderStep, const TensorType* typeOfTokens,
               std::shared_ptr<Allocator> memory)
      : tokenType(typeOfTokens), step(decoderStep), allocator(std::move(memory)),
        batch(static_cast<int64_t>(decoderStep.tokens.size())),
        rows(static_cast<int64_t>(decoderStep.tokens.front().size())) {}

  llvm::Expected<Tensor> build(const Value& input) const {
    llvm::StringRef name = input.name();
    if (name == "input_ids" || name == "decoder_input_ids")
      return tokens(input);
    if (name == "attention_mask")
      return mask(input);
    if (name == "position_ids")
      return positions(input);
    if (name == "cache_position")
      return cachePositions(input);
    if (name == "encoder_attention_mask")
      return convert(input, {batch, encoderTokens},
                     std::vector<int64_t>(static_cast<size_t>(batch * encoderTokens), 1));
    if (isFloatingPoint(input.type().elementType()) && input.type().hasRank() &&
        input.type().rank() >= 3)
      return encoderOutput(input);
    return unsupported("input '{}' is not one a decoder is usually fed", name)
        .hint("known are input_ids, attention_mask, position_ids and cache_position");
  }

private:
  bool isVisible(int64_t row, int64_t position) const {
    return step.visible.empty() ||
           step.visible[static_cast<size_t>(row)][static_cast<size_t>(position)] != 0;
  }

  llvm::Expected<Tensor> tokens(const Value& input) const {
    std::vector<int64_t> values;
    for (const std::vector<int64_t>& row : step.tokens)
      values.insert(values.end(), row.begin(), row.end());
    return convert(input, {batch, rows}, values);
  }

  llvm::Expected<Tensor> mask(const Value& input) const {
    std::vector<int64_t> values;
    int64_t total = step.pastLength + rows;
    for (int64_t row = 0; row < batch; ++row)
      for (int64_t position = 0; position < total; ++position)
        values.push_back(isVisible(row, position) ? 1 : 0);
    return convert(input, {batch, total}, values);
  }

  llvm::Expected<Tensor> positions(const Value& input) const {
    std::vector<int64_t> values;
    for (int64_t row = 0; row < batch; ++row) {
      int64_t seen = 0;
      for (int64_t position = 0; position < step.pastLength + rows; ++position) {
        bool visible = isVisible(row, position);
        if (position >= step.pastLength)
          values.push_back(visible ? seen : 0);
        seen += visible ? 1 : 0;
      }
    }
    return convert(input, {batch, rows}, values);
  }

  llvm::Expected<Tensor> cachePositions(const Value& input) const {
    std::vector<int64_t> values;
    for (int64_t row = 0; row < rows; ++row)
      values.push_back(step.pastLength + row);
    return convert(input, {rows}, values);
  }

  /// The value of a symbol that the token ids' type fixes.
  int64_t symbolValue(llvm::StringRef symbol) const {
    if (tokenType)
      for (unsigned axis = 0; axis < std::min(2u, tokenType->rank()); ++axis)
        if (tokenType->shape()[axis] == Dim::symbol(symbol))
          return axis == 0 ? batch : rows;
    return encoderTokens;
  }

  llvm::Expected<Tensor> encoderOutput(const Value& input) const {
    Extents shape;
    for (const Dim& extent : input.type().shape()) {
      // Batch rows come first, whatever they are called.
      if (shape.empty() && !extent.value()) {
        shape.push_back(batch);
        continue;
      }
      if (shape.size() == 1 && input.name() == "inputs_embeds") {
        shape.push_back(rows);
        continue;
      }
      auto known = extent.evaluate(
          [&](llvm::StringRef symbol) -> std::optional<int64_t> { return symbolValue(symbol); });
      shape.push_back(known.value_or(encoderTokens));
    }
    auto count = checkedElementCount(shape);
    if (!count)
      return count.takeError();
    if (*count > mostMadeUpElements)
      return unsupported("input '{}' is too large to be made up", input.name());
    std::mt19937_64 random(llvm::xxHash64(input.name()));
    std::uniform_real_distribution<float> any(-1.0f, 1.0f);
    std::vector<float> values(static_cast<size_t>(*count));
    for (float& value : values)
      value = any(random);
    ElementType element = input.type().elementType();
    if (element == ElementType::Float)
      return Tensor::of<float>(allocator, element, shape, std::span<const float>(values));
    if (element != ElementType::Float16 && element != ElementType::BFloat16)
      return unsupported("input '{}' has element type {}", input.name(), onnxName(element));
    std::vector<uint16_t> halves;
    for (float value : values)
      halves.push_back(element == ElementType::Float16 ? floatToF16(value) : floatToBf16(value));
    return Tensor::of<uint16_t>(allocator, element, shape, std::span<const uint16_t>(halves));
  }

  template <class T>
  llvm::Expected<Tensor> as(ElementType element, llvm::ArrayRef<int64_t> shape,
                            llvm::ArrayRef<int64_t> values) const {
    std::vector<T> converted;
    for (int64_t value : values)
      converted.push_back(static_cast<T>(value));
    return Tensor::of<T>(allocator, element, shape, std::span<const T>(converted));
  }

  llvm::Expected<Tensor> convert(const Value& input, llvm::ArrayRef<int64_t> shape,
                                 llvm::ArrayRef<int64_t> values) const {
    ElementType element = input.type().elementType();
    switch (element) {
    case ElementType::Int64:
      return as<int64_t>(element, shape, values);
    case ElementType::Int32:
      return as<int32_t>(element, shape, values);
    case ElementType::Bool:
      return as<uint8_t>(element, shape, values);
    case ElementType::Float:
      return as<float>(element, shape, values);
    default:
      return unsupported("input '{}' has element type {}", input.name(), onnxName(element));
    }
  }

  const TensorType* tokenType; ///< null where there is no such input
  const DecoderStep& step;
  std::shared_ptr<Allocator> allocator;
  int64_t batch;
  int64_t rows;
};

llvm::Error checkStep(const DecoderStep& step) {
  if (step.tokens.empty() || step.tokens.front().empty())
    return invalid("a step without tokens");
  for (const std::vector<int64_t>& row : step.tokens)
    if (row.size() != step.tokens.front().size())
      return invalid("the batch rows of a step differ in length");
  if (step.visible.empty())
    return llvm::Error::success();
  size_t total = static_cast<size_t>(step.pastLength) + step.tokens.front().size();
  if (step.visible.size() != step.tokens.size())
    return invalid("the mask's batch size is not the step's");
  for (const std::vector<uint8_t>& row : step.visible)
    if (row.size() != total)
      return invalid("the mask names {} positions, there are {}", row.size(), total);
  return llvm::Error::success();
}

} // namespace

llvm::Expected<std::vector<NamedTensor>>
decoderInputs(llvm::ArrayRef<const Value*> inputs, const DecoderStep& step,
              const std::shared_ptr<Allocator>& allocator) {
  if (llvm::Error error = checkStep(step))
    return error;
  const TensorType* tokenType = nullptr;
  for (const Value* input : inputs)
    if ((input->name() == "input_ids" || input->name() == "decoder_input_ids") &&
        input->type().hasRank())
      tokenType = &input->type();
  InputBuilder builder(step, tokenType, allocator);
  std::vector<NamedTensor> result;
  for (const Value* input : inputs) {
    auto tensor = builder.build(*input);
    if (!tensor)
      return tensor.takeError();
    result.push_back({input->name().str(), std::move(*tensor)});
  }
  return result;
}

llvm::Expected<StepResult> stepDecoder(Session& session, const DecoderStep& step) {
  auto inputs = decoderInputs(session.callerInputs(), step, session.allocator());
  if (!inputs)
    return inputs.takeError();
  std::vector<NamedView> views;
  for (const NamedTensor& input : *inputs)
    views.push_back({input.name, input.tensor.view});
  return session.step(views, static_cast<int64_t>(step.tokens.front().size()));
}

} // namespace kvopt
