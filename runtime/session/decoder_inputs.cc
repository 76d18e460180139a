// Building the inputs of a step.
#include "runtime/session/decoder_inputs.h"

#include "ir/manifest/documented_inputs.h"
#include "runtime/cache/checksum.h"
#include "runtime/exec/input_binding.h"
#include "runtime/memory/buffer.h"
#include "runtime/session/token_ids.h"
#include "support/diagnostic.h"
#include "support/half.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>
#include <random>

namespace kvopt::runtime {
using namespace ir;

namespace {

constexpr int64_t mostMadeUpElements = int64_t{1} << 26;
/// Tokens of a segment.
constexpr int64_t segmentTokens = 8;

bool isTokenName(const Value& input) {
  const DocumentedInput* documented = documentedInput(input);
  return documented && documented->feed == InputFeed::Tokens;
}

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

bool isMaskFeed(InputFeed feed) {
  return feed == InputFeed::VisibleKeys || feed == InputFeed::HiddenKeys ||
         feed == InputFeed::AdditiveMask;
}

/// The lowest finite number of a floating-point type.
double lowestOf(ElementType element) {
  constexpr double lowestHalf = -65504;
  constexpr double lowestBrain = -3.3895313892515355e38;
  return element == ElementType::Float16    ? lowestHalf
         : element == ElementType::BFloat16 ? lowestBrain
                                            : double{std::numeric_limits<float>::lowest()};
}

/// Whether a number converts to an element of that type. Requires a finite number.
bool holds(ElementType element, double number) {
  if (!isInteger(element))
    return true;
  const bool isUnsigned = element == ElementType::UInt8 || element == ElementType::UInt16 ||
                          element == ElementType::UInt32 || element == ElementType::UInt64;
  const double limit =
      std::ldexp(1.0, static_cast<int>(bitWidth(element).value_or(8)) - (isUnsigned ? 0 : 1));
  return number > (isUnsigned ? -1.0 : -limit - 1.0) && number < limit;
}

class InputBuilder {
public:
  InputBuilder(const DecoderStep& decoderStep, const Value* tokenInput,
               llvm::ArrayRef<ManifestInput> describedInputs, std::shared_ptr<Allocator> memory)
      : tokenType(tokenInput ? &tokenInput->type() : nullptr),
        rowsPerBatch(tokenInput ? tokenIdsOf(*tokenInput).rowsPerBatch : 1), step(decoderStep),
        described(describedInputs), allocator(std::move(memory)),
        batch(static_cast<int64_t>(decoderStep.tokens.size())),
        rows(static_cast<int64_t>(decoderStep.tokens.front().size())),
        total(decoderStep.pastLength + rows) {}

  llvm::Expected<Tensor> build(const Value& input) const {
    llvm::StringRef name = input.name();
    const ManifestInput* description = findEntry(described, name);
    if (const InputRecipe* recipe = findEntry(step.recipes, name))
      return byRecipe(input, *recipe, description);
    if (description && description->feed != InputFeed::Any)
      return byFeed(input, description->feed, description->shape);
    if (const DocumentedInput* documented = documentedInput(input);
        documented && documented->feed != InputFeed::Any)
      return byName(input, *documented);
    if (isEncoderOutput(input))
      return madeUp(input, description ? extents(description->shape) : declaredShape(input));
    if (input.type().hasRank())
      return guessed(input, description ? extents(description->shape) : declaredShape(input));
    return unsupported("input '{}' is not one a decoder is usually fed", name)
        .hint("--input NAME=VALUE@EXTENTS says what to feed it");
  }

private:
  llvm::Expected<Tensor> byName(const Value& input, const DocumentedInput& documented) const {
    if (documented.feed == InputFeed::Tokens)
      return byFeed(input, documented.feed, tokenShape(input.type()));
    if (input.name() == "encoder_attention_mask")
      return fill(input, {batch, encoderTokens}, [](auto) { return 1.0; });
    if (documented.feed == InputFeed::VisibleKeys)
      return byFeed(input, documented.feed, {"batch", maskExtent(input)});
    if (documented.rank == 1)
      return byFeed(input, documented.feed, {"new"});
    return byFeed(input, documented.feed, {"batch", "new"});
  }

  using Index = llvm::ArrayRef<int64_t>;

  bool isVisible(int64_t row, int64_t position) const {
    return step.visible.empty() ||
           step.visible[static_cast<size_t>(row)][static_cast<size_t>(position)] != 0;
  }

  /// Masks of static caches are as long as those.
  static ManifestExtent maskExtent(const Value& input) {
    if (input.type().hasRank() && input.type().rank() == 2)
      if (std::optional<int64_t> fixed = input.type().dim(1).value())
        return *fixed;
    return "total";
  }

  /// Batch rows, then tokens; an axis of fixed extent counts codebooks.
  static std::vector<ManifestExtent> tokenShape(const TensorType& type) {
    std::vector<ManifestExtent> shape = {"batch", "new"};
    if (!type.hasRank() || type.rank() != 3 || type.dim(0).value())
      return shape;
    const unsigned axis = type.dim(1).value() ? 1 : 2;
    if (const std::optional<int64_t> codebooks = type.dim(axis).value())
      shape.insert(shape.begin() + axis, *codebooks);
    return shape;
  }

  Extents extents(llvm::ArrayRef<ManifestExtent> shape) const {
    Extents result;
    for (const ManifestExtent& extent : shape) {
      if (const auto* fixed = std::get_if<int64_t>(&extent)) {
        result.push_back(*fixed);
        continue;
      }
      const std::string& word = std::get<std::string>(extent);
      result.push_back(word == "new"                       ? rows
                       : word == "past"                    ? step.pastLength
                       : word == "total"                   ? total
                       : word == "batch" || result.empty() ? batch
                                                           : encoderTokens);
    }
    return result;
  }

  /// The value of a symbol that the token ids' type fixes.
  int64_t symbolValue(llvm::StringRef symbol) const {
    if (tokenType)
      for (unsigned axis = 0; axis < std::min(2u, tokenType->rank()); ++axis)
        if (tokenType->shape()[axis] == Dim::symbol(symbol))
          return axis == 0 ? batch * rowsPerBatch : rows;
    return encoderTokens;
  }

  Extents declaredShape(const Value& input) const {
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
    return shape;
  }

  /// What the indices of a tensor stand for.
  struct Axes {
    bool hasBatch = false; ///< on the first axis
    std::optional<unsigned> query;
    int64_t firstKey = 0; ///< the position that the last axis begins with

    int64_t row(Index index) const { return hasBatch ? index.front() : 0; }
  };

  Axes axesOf(InputFeed feed, llvm::ArrayRef<ManifestExtent> shape, const Extents& extent) const {
    auto isWord = [&](size_t axis, const char* word) {
      const auto* text = std::get_if<std::string>(&shape[axis]);
      return text && *text == word;
    };
    Axes axes;
    const size_t rank = shape.size();
    if (rank >= 2 && isMaskFeed(feed) &&
        (isWord(rank - 2, "new") || (rank >= 3 && extent[rank - 2] == rows)))
      axes.query = static_cast<unsigned>(rank - 2);
    axes.hasBatch = rank >= 2 && axes.query != 0u && extent.front() == batch;
    if (rank >= 1 && isWord(rank - 1, "new"))
      axes.firstKey = step.pastLength;
    return axes;
  }

  llvm::Expected<Tensor> byFeed(const Value& input, InputFeed feed,
                                llvm::ArrayRef<ManifestExtent> shape) const {
    const Extents extent = extents(shape);
    const Axes axes = axesOf(feed, shape, extent);
    switch (feed) {
    case InputFeed::Tokens:
      return tokens(input, shape, extent);
    case InputFeed::Positions:
      return fill(input, extent,
                  [&](Index index) { return static_cast<double>(positionAt(axes, index)); });
    case InputFeed::VisibleKeys:
      return fill(input, extent, [&](Index index) { return sees(axes, index) ? 1.0 : 0.0; });
    case InputFeed::HiddenKeys:
      return fill(input, extent, [&](Index index) { return sees(axes, index) ? 0.0 : 1.0; });
    case InputFeed::AdditiveMask: {
      const double lowest = lowestOf(input.type().elementType());
      return fill(input, extent, [&](Index index) { return sees(axes, index) ? 0.0 : lowest; });
    }
    case InputFeed::Segments:
      return fill(input, extent, [&](Index index) {
        const int64_t position = axes.firstKey + (index.empty() ? 0 : index.back());
        return static_cast<double>(position / segmentTokens % 2);
      });
    case InputFeed::BatchRows:
      return fill(input, extent, [&](Index index) {
        const int64_t row = index.empty() ? 0 : index.back();
        const bool isReordered = row < static_cast<int64_t>(step.batchRows.size());
        return static_cast<double>(isReordered ? step.batchRows[static_cast<size_t>(row)] : row);
      });
    case InputFeed::Any:
      break;
    }
    return guessed(input, extent);
  }

  /// A made-up row for each token id, [batch, new, width]: the same wherever the token is.
  llvm::Expected<Tensor> embeddings(const Value& input, const Extents& extent) const {
    const uint64_t seed = Checksum::of(std::as_bytes(std::span(input.name())));
    std::uniform_real_distribution<float> any(-1.0f, 1.0f);
    std::mt19937_64 random;
    return fill(input, extent, [&](Index index) {
      const auto& row = step.tokens[static_cast<size_t>(index[0])];
      if (index[2] == 0)
        random.seed(seed + static_cast<uint64_t>(row[static_cast<size_t>(index[1]) % row.size()]));
      return double{any(random)};
    });
  }

  /// The step's tokens, the same for each codebook where ids are not made up.
  llvm::Expected<Tensor> tokens(const Value& input, llvm::ArrayRef<ManifestExtent> shape,
                                Extents extent) const {
    const TokenIds ids = tokenIdsOf(input);
    const auto isNew = [](const ManifestExtent& each) {
      const auto* word = std::get_if<std::string>(&each);
      return word && *word == "new";
    };
    const auto* along = llvm::find_if(shape, isNew);
    const size_t axis = along == shape.end() ? extent.size() - 1 : along - shape.begin();
    const bool hasBatch = extent.size() >= 2 && axis != 0 && extent.front() == batch;
    if (hasBatch)
      extent.front() *= ids.rowsPerBatch;
    return fill(input, extent, [&](Index index) {
      const int64_t place = hasBatch ? index.front() : 0;
      const auto& row =
          step.tokens[static_cast<size_t>(std::min(place / ids.rowsPerBatch, batch - 1))];
      const int64_t id = row[static_cast<size_t>(index.empty() ? 0 : index[axis]) % row.size()];
      if (!step.isMadeUp)
        return static_cast<double>(id);
      // Each codebook gets ids of its own.
      int64_t codebook = place % ids.rowsPerBatch;
      for (size_t other = 1; other < index.size(); ++other)
        codebook += other == axis ? 0 : index[other];
      return static_cast<double>((id + codebook) % ids.countAt(index));
    });
  }

  bool sees(const Axes& axes, Index index) const {
    const int64_t key = axes.firstKey + (index.empty() ? 0 : index.back());
    return key < total && isVisible(axes.row(index), key) &&
           (!axes.query || key <= step.pastLength + index[*axes.query]);
  }

  /// Of a token: without a batch axis its place, else how many visible ones there are before it.
  int64_t positionAt(const Axes& axes, Index index) const {
    const int64_t position = step.pastLength + (index.empty() ? 0 : index.back() % rows);
    if (!axes.hasBatch || step.visible.empty())
      return position;
    const int64_t row = axes.row(index);
    int64_t seen = 0;
    for (int64_t earlier = 0; earlier < position; ++earlier)
      seen += isVisible(row, earlier) ? 1 : 0;
    return isVisible(row, position) ? seen : 0;
  }

  llvm::Expected<Tensor> byRecipe(const Value& input, const InputRecipe& recipe,
                                  const ManifestInput* description) const {
    std::vector<ManifestExtent> shape = recipe.shape;
    if (!recipe.hasShape && description)
      shape = description->shape;
    else if (!recipe.hasShape && !input.type().hasRank())
      return usageError("--input {}: the model does not declare the input's rank", input.name())
          .hint("add the extents, as in --input NAME=zeros@batch,new");
    else if (!recipe.hasShape)
      for (int64_t extent : declaredShape(input))
        shape.emplace_back(extent);
    const Extents extent = extents(shape);
    using Kind = InputRecipe::Kind;
    switch (recipe.kind) {
    case Kind::Feed:
      return byFeed(input, recipe.feed, shape);
    case Kind::Random:
      return madeUp(input, extent);
    case Kind::Range:
      return fill(input, extent, [](Index index) {
        return index.empty() ? 0.0 : static_cast<double>(index.back());
      });
    case Kind::Numbers: {
      for (double number : recipe.numbers)
        if (!holds(input.type().elementType(), number))
          return usageError("--input {}: {} does not fit in the input's type {}", input.name(),
                            number, dtypeName(input.type().elementType()));
      size_t next = 0;
      return fill(input, extent,
                  [&](Index) { return recipe.numbers[next++ % recipe.numbers.size()]; });
    }
    case Kind::PastLength:
    case Kind::TotalLength:
    case Kind::Ones:
    case Kind::Zeros:
      break;
    }
    const int64_t number = recipe.kind == Kind::PastLength    ? step.pastLength
                           : recipe.kind == Kind::TotalLength ? total
                           : recipe.kind == Kind::Ones        ? 1
                                                              : 0;
    return fill(input, extent, [&](Index) { return static_cast<double>(number); });
  }

  llvm::Expected<Tensor> guessed(const Value& input, const Extents& shape) const {
    if (isFloatingPoint(input.type().elementType()))
      return madeUp(input, shape);
    const double number = input.type().elementType() == ElementType::Bool ? 1 : 0;
    return fill(input, shape, [&](Index) { return number; });
  }

  llvm::Expected<Tensor> madeUp(const Value& input, const Extents& shape) const {
    if (input.name() == "inputs_embeds" && shape.size() == 3 && shape[0] == batch &&
        shape[1] == rows)
      return embeddings(input, shape);
    std::mt19937_64 random(Checksum::of(std::as_bytes(std::span(input.name()))));
    std::uniform_real_distribution<float> any(-1.0f, 1.0f);
    return fill(input, shape, [&](Index) { return double{any(random)}; });
  }

  /// Calls numberAt for every index in row-major order.
  template <class NumberAt>
  llvm::Expected<Tensor> fill(const Value& input, const Extents& shape, NumberAt numberAt) const {
    auto count = checkedElementCount(shape);
    if (!count)
      return withNode(count.takeError(), input.name());
    if (*count > mostMadeUpElements)
      return unsupported("input '{}' is too large to be made up", input.name());
    switch (input.type().elementType()) {
    case ElementType::Int64:
      return fillAs<int64_t>(input, shape, *count, numberAt);
    case ElementType::Int32:
      return fillAs<int32_t>(input, shape, *count, numberAt);
    case ElementType::Bool:
      return fillAs<uint8_t>(input, shape, *count,
                             [&](Index index) { return numberAt(index) != 0 ? 1.0 : 0.0; });
    case ElementType::Int8:
      return fillAs<int8_t>(input, shape, *count, numberAt);
    case ElementType::UInt8:
      return fillAs<uint8_t>(input, shape, *count, numberAt);
    case ElementType::Int16:
      return fillAs<int16_t>(input, shape, *count, numberAt);
    case ElementType::Double:
      return fillAs<double>(input, shape, *count, numberAt);
    case ElementType::Float:
      return fillAs<float>(input, shape, *count, numberAt);
    case ElementType::Float16:
      return fillAs<uint16_t>(input, shape, *count, [&](Index index) {
        return static_cast<double>(floatToF16(static_cast<float>(numberAt(index))));
      });
    case ElementType::BFloat16:
      return fillAs<uint16_t>(input, shape, *count, [&](Index index) {
        return static_cast<double>(floatToBf16(static_cast<float>(numberAt(index))));
      });
    default:
      return unsupported("input '{}' has element type {}", input.name(),
                         onnxName(input.type().elementType()));
    }
  }

  template <class T, class NumberAt>
  llvm::Expected<Tensor> fillAs(const Value& input, const Extents& shape, int64_t count,
                                NumberAt numberAt) const {
    auto tensor = Tensor::create(allocator, input.type().elementType(), shape);
    if (!tensor)
      return tensor;
    Extents index(shape.size(), 0);
    for (int64_t i = 0; i < count; ++i) {
      tensor->view.template as<T>()[i] = static_cast<T>(numberAt(Index(index)));
      for (size_t axis = shape.size(); axis-- > 0 && ++index[axis] == shape[axis];)
        index[axis] = 0;
    }
    return tensor;
  }

  const TensorType* tokenType; ///< null where there is no such input
  int64_t rowsPerBatch;        ///< of that input
  const DecoderStep& step;
  llvm::ArrayRef<ManifestInput> described;
  std::shared_ptr<Allocator> allocator;
  int64_t batch;
  int64_t rows;
  int64_t total;
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

bool isTokenInput(const Value& input, llvm::ArrayRef<ManifestInput> described) {
  const ManifestInput* description = findEntry(described, input.name());
  const bool isDescribed = description && description->feed != InputFeed::Any;
  return isDescribed ? description->feed == InputFeed::Tokens : isTokenName(input);
}

} // namespace

llvm::Expected<std::vector<NamedTensor>> decoderInputs(llvm::ArrayRef<const Value*> inputs,
                                                       const DecoderStep& step,
                                                       const std::shared_ptr<Allocator>& allocator,
                                                       llvm::ArrayRef<ManifestInput> described) {
  if (llvm::Error error = checkStep(step))
    return error;
  for (const InputRecipe& recipe : step.recipes)
    if (llvm::none_of(inputs, [&](const Value* input) { return input->name() == recipe.input; }))
      return usageError("--input {}: the model has no such input besides caches", recipe.input);
  const Value* tokenInput = nullptr;
  for (const Value* input : inputs)
    if (isTokenInput(*input, described) && input->type().hasRank())
      tokenInput = input;
  InputBuilder builder(step, tokenInput, described, allocator);
  std::vector<NamedTensor> result;
  for (const Value* input : inputs) {
    auto tensor = builder.build(*input);
    if (!tensor)
      return tensor.takeError();
    result.push_back({input->name().str(), std::move(*tensor)});
  }
  return result;
}

std::vector<std::string> guessedInputs(llvm::ArrayRef<const Value*> inputs,
                                       llvm::ArrayRef<InputRecipe> recipes,
                                       llvm::ArrayRef<ManifestInput> described) {
  std::vector<std::string> names;
  for (const Value* input : inputs) {
    llvm::StringRef name = input->name();
    const ManifestInput* description = findEntry(described, name);
    const bool isDescribed = description && description->feed != InputFeed::Any;
    const DocumentedInput* documented = documentedInput(*input);
    const bool isNamed = documented && documented->feed != InputFeed::Any;
    if (!findEntry(recipes, name) && !isDescribed && !isNamed && !isEncoderOutput(*input))
      names.push_back(name.str());
  }
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

std::vector<const Value*> tokenInputs(const Graph& graph, llvm::ArrayRef<ManifestInput> described) {
  std::vector<const Value*> tokens;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (isTokenInput(*input, described))
      tokens.push_back(input.get());
  return tokens;
}

llvm::SmallVector<const Value*, 8> drivenInputs(const Session& session,
                                                llvm::ArrayRef<InputRecipe> recipes) {
  llvm::SmallVector<const Value*, 8> driven(session.callerInputs().begin(),
                                            session.callerInputs().end());
  for (const ManifestLength& length : session.manifest().lengths)
    if (findEntry(recipes, length.input))
      if (const Value* input = session.graph().findValue(length.input))
        driven.push_back(input);
  return driven;
}

llvm::Expected<std::vector<NamedTensor>> decoderInputs(const Session& session,
                                                       const DecoderStep& step) {
  return decoderInputs(drivenInputs(session, step.recipes), step, session.allocator(),
                       session.manifest().inputs);
}

llvm::Expected<StepResult> stepDecoder(Session& session, const DecoderStep& step) {
  auto inputs = decoderInputs(session, step);
  if (!inputs)
    return inputs.takeError();
  std::vector<NamedView> views;
  for (const NamedTensor& input : *inputs)
    views.push_back({input.name, input.tensor.view});
  return session.step(views, static_cast<int64_t>(step.tokens.front().size()));
}

} // namespace kvopt::runtime
