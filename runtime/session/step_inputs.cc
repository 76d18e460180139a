// Filling the tensors of a step.
#include "runtime/session/step_inputs.h"

#include "ir/manifest/documented_inputs.h"
#include "ir/manifest/fed_length.h"
#include "ir/tensor.h"
#include "runtime/cache/checksum.h"
#include "support/diagnostic.h"
#include "support/half.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>
#include <limits>
#include <random>

namespace kvopt::runtime {
using namespace ir;

namespace {

using PlanKind = InputPlan::Kind;
using Index = llvm::ArrayRef<int64_t>;

constexpr int64_t mostMadeUpElements = int64_t{1} << 26;
/// Number of tokens in a segment of made-up tokens; others are one segment.
constexpr int64_t segmentTokens = 8;

/// The lowest finite number of a floating-point type.
double lowestOf(ElementType element) {
  constexpr double lowestHalf = -65504;
  constexpr double lowestBrain = -3.3895313892515355e38;
  return element == ElementType::Float16    ? lowestHalf
         : element == ElementType::BFloat16 ? lowestBrain
                                            : double{std::numeric_limits<float>::lowest()};
}

/// Meaning of the axes of a tensor.
struct Axes {
  bool hasBatch = false; ///< the first axis
  std::optional<unsigned> query;
  /// Position of the first entry of the last axis; negative before the first token.
  int64_t firstKey = 0;

  int64_t row(Index index) const { return hasBatch ? index.front() : 0; }
};

Axes axesOf(const InputPlan& input, const Extents& extents, const DecoderStep& step) {
  Axes axes;
  const size_t rank = extents.size();
  if (rank >= 2 && isMaskFeed(input.feed) &&
      (input.isWord(rank - 2, "new") || (rank >= 3 && extents[rank - 2] == step.newTokens())))
    axes.query = static_cast<unsigned>(rank - 2);
  axes.hasBatch = rank >= 2 && axes.query != 0u && extents.front() == step.batch();
  if (rank >= 1 && input.isWord(rank - 1, "new"))
    axes.firstKey = step.pastLength;
  if (rank >= 1 && isAtEnd(input.feed))
    axes.firstKey = step.total() - extents.back();
  return axes;
}

/// Positions from the view of one step.
struct Sight {
  const DecoderStep& step;
  const HiddenPositions& hidden;
  Axes axes;
  bool isOfAll = false; ///< whether the last axis is of all tokens so far, not of the new ones

  bool sees(Index index) const {
    const int64_t key = axes.firstKey + (index.empty() ? 0 : index.back());
    return key >= 0 && key < step.total() && !hidden.contain(axes.row(index), key) &&
           (!axes.query || key <= step.pastLength + index[*axes.query]);
  }

  /// Position of a token: without a batch axis its index, otherwise the number of visible tokens
  /// before it.
  int64_t positionOf(Index index) const {
    const int64_t position =
        isOfAll ? (index.empty() ? 0 : index.back())
                : step.pastLength + (index.empty() ? 0 : index.back() % step.newTokens());
    if (!axes.hasBatch)
      return position;
    const int64_t row = axes.row(index);
    return hidden.contain(row, position) ? 0 : position - hidden.countBefore(row, position);
  }
};

/// Position of the latest of `total` tokens in a row of caches of `slots` rows; -1 if there is
/// none.
int64_t positionIn(int64_t row, int64_t slots, int64_t total) {
  if (row >= total)
    return -1;
  return slots == 0 || total <= slots ? row : row + (total - 1 - row) / slots * slots;
}

/// Calls numberAt for the indices whose last one is in [first, end), in row-major order.
template <class T, class NumberAt>
void fillColumnsAs(const TensorView& view, int64_t first, int64_t end, NumberAt& numberAt) {
  T* elements = view.as<T>();
  if (view.rank() == 0) {
    *elements = static_cast<T>(numberAt(Index()));
    return;
  }
  const int64_t columns = view.shape.back();
  const int64_t rows = columns == 0 ? 0 : view.elementCount() / columns;
  Extents index(view.rank(), 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = first; column < end; ++column) {
      index.back() = column;
      elements[row * columns + column] = static_cast<T>(numberAt(Index(index)));
    }
    for (size_t axis = index.size() - 1; axis-- > 0 && ++index[axis] == view.shape[axis];)
      index[axis] = 0;
  }
}

bool canFill(ElementType element) {
  switch (element) {
  case ElementType::Int64:
  case ElementType::Int32:
  case ElementType::Bool:
  case ElementType::Int8:
  case ElementType::UInt8:
  case ElementType::Int16:
  case ElementType::Double:
  case ElementType::Float:
  case ElementType::Float16:
  case ElementType::BFloat16:
    return true;
  default:
    return false;
  }
}

/// Requires an element type that can be filled.
template <class NumberAt>
void fillColumns(const TensorView& view, int64_t first, int64_t end, NumberAt numberAt) {
  const auto isNotZero = [&](Index index) { return numberAt(index) != 0 ? 1.0 : 0.0; };
  const auto half = [&](Index index) {
    return static_cast<double>(floatToF16(static_cast<float>(numberAt(index))));
  };
  const auto brain = [&](Index index) {
    return static_cast<double>(floatToBf16(static_cast<float>(numberAt(index))));
  };
  switch (view.element) {
  case ElementType::Int64:
    return fillColumnsAs<int64_t>(view, first, end, numberAt);
  case ElementType::Int32:
    return fillColumnsAs<int32_t>(view, first, end, numberAt);
  case ElementType::Bool:
    return fillColumnsAs<uint8_t>(view, first, end, isNotZero);
  case ElementType::Int8:
    return fillColumnsAs<int8_t>(view, first, end, numberAt);
  case ElementType::UInt8:
    return fillColumnsAs<uint8_t>(view, first, end, numberAt);
  case ElementType::Int16:
    return fillColumnsAs<int16_t>(view, first, end, numberAt);
  case ElementType::Double:
    return fillColumnsAs<double>(view, first, end, numberAt);
  case ElementType::Float16:
    return fillColumnsAs<uint16_t>(view, first, end, half);
  case ElementType::BFloat16:
    return fillColumnsAs<uint16_t>(view, first, end, brain);
  default:
    return fillColumnsAs<float>(view, first, end, numberAt);
  }
}

int64_t columnsOf(llvm::ArrayRef<int64_t> extents) { return extents.empty() ? 1 : extents.back(); }

bool haveSameRows(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  return a.size() == b.size() && !a.empty() && a.drop_back() == b.drop_back();
}

/// Changes the length of the rows of a contiguous tensor in the same memory, or in `to`. Rows keep
/// their first `kept` elements.
void respaceRows(const TensorView& from, std::byte* to, int64_t columns, int64_t kept) {
  const int64_t before = columnsOf(from.shape);
  const int64_t rows = before == 0 ? 0 : from.elementCount() / before;
  const int64_t width = *memoryWidth(from.element);
  const auto move = [&](int64_t row) {
    std::memmove(to + row * columns * width, from.data + row * before * width,
                 static_cast<size_t>(kept * width));
  };
  if (columns > before)
    for (int64_t row = rows; row-- > 0;)
      move(row);
  else
    for (int64_t row = 0; row < rows; ++row)
      move(row);
}

} // namespace

StepInputs::StepInputs(DecoderPlan fedInputs, std::shared_ptr<Allocator> memory)
    : plan(std::move(fedInputs)), allocator(std::move(memory)), kept(plan.inputs.size()),
      filled(plan.inputs.size()) {
  for (size_t i = 0; i < kept.size(); ++i)
    kept[i].name = plan.inputs[i].input->name().str();
}

llvm::Error StepInputs::prepare(const DecoderStep& step, const HiddenPositions& hidden) {
  for (size_t i = 0; i < kept.size(); ++i) {
    if (llvm::Error error = fill(i, step, hidden)) {
      filled[i].isValid = false;
      return error;
    }
    filled[i].isValid = true;
    filled[i].newTokens = step.newTokens();
    filled[i].total = step.total();
  }
  return llvm::Error::success();
}

bool StepInputs::isFilled(size_t index, const Extents& extents) const {
  return filled[index].isValid && kept[index].tensor.view.shape == extents;
}

llvm::Error StepInputs::fill(size_t index, const DecoderStep& step, const HiddenPositions& hidden) {
  const InputPlan& input = plan.inputs[index];
  const Extents extents = plan.extents(input, step);
  const auto number = [](double value) { return [value](Index) { return value; }; };
  switch (input.kind) {
  case PlanKind::Feed:
    return fillFeed(index, step, hidden, extents);
  case PlanKind::Random:
    return fillRandom(index, step, extents);
  case PlanKind::Length:
    return fillAll(index, extents,
                   number(static_cast<double>(
                       fedLength(input.length, step.pastLength, step.newTokens()).value_or(0))));
  case PlanKind::Number:
  case PlanKind::Range:
  case PlanKind::Numbers:
    break;
  }
  if (isFilled(index, extents))
    return llvm::Error::success();
  if (input.kind == PlanKind::Number)
    return fillAll(index, extents, number(input.number));
  if (input.kind == PlanKind::Range)
    return fillAll(index, extents,
                   [](Index at) { return at.empty() ? 0.0 : static_cast<double>(at.back()); });
  size_t next = 0;
  return fillAll(index, extents,
                 [&](Index) { return input.numbers[next++ % input.numbers.size()]; });
}

llvm::Error StepInputs::fillFeed(size_t index, const DecoderStep& step,
                                 const HiddenPositions& hidden, const Extents& extents) {
  const InputPlan& input = plan.inputs[index];
  const Sight sight{step, hidden, axesOf(input, extents, step),
                    !extents.empty() && input.isWord(extents.size() - 1, "total")};
  const bool hasQueries = sight.axes.query.has_value();
  switch (input.feed) {
  case InputFeed::Tokens:
    return fillTokens(index, step, extents);
  case InputFeed::Positions:
    return fillAll(index, extents,
                   [&](Index at) { return static_cast<double>(sight.positionOf(at)); });
  case InputFeed::Slots:
    return fillAll(index, extents, [&](Index at) {
      const int64_t position = step.pastLength + (at.empty() ? 0 : at.back() % step.newTokens());
      return static_cast<double>(plan.slots == 0 ? position : position % plan.slots);
    });
  case InputFeed::KeyPositions:
    return fillAll(index, extents, [&](Index at) {
      return static_cast<double>(
          positionIn(at.empty() ? 0 : at.back(), columnsOf(extents), step.total()));
    });
  case InputFeed::VisibleKeys:
  case InputFeed::VisibleKeysAtEnd:
    return appendColumns(index, extents, step, hasQueries,
                         [&](Index at) { return sight.sees(at) ? 1.0 : 0.0; });
  case InputFeed::HiddenKeys:
  case InputFeed::HiddenKeysAtEnd:
    return appendColumns(index, extents, step, hasQueries,
                         [&](Index at) { return sight.sees(at) ? 0.0 : 1.0; });
  case InputFeed::AdditiveMask:
  case InputFeed::AdditiveMaskAtEnd: {
    const double lowest = lowestOf(input.input->type().elementType());
    return appendColumns(index, extents, step, hasQueries,
                         [&](Index at) { return sight.sees(at) ? 0.0 : lowest; });
  }
  case InputFeed::Segments:
    return appendColumns(index, extents, step, hasQueries, [&](Index at) {
      const int64_t position = sight.axes.firstKey + (at.empty() ? 0 : at.back());
      return step.isMadeUp ? static_cast<double>(position / segmentTokens % 2) : 0.0;
    });
  case InputFeed::BatchRows:
  case InputFeed::Constant: // has a plan of its own
  case InputFeed::Any:
    break;
  }
  return fillAll(index, extents, [&](Index at) {
    const int64_t row = at.empty() ? 0 : at.back();
    const bool isReordered = row < static_cast<int64_t>(step.batchRows.size());
    return static_cast<double>(isReordered ? step.batchRows[static_cast<size_t>(row)] : row);
  });
}

/// Fills the step's tokens, the same for each codebook unless ids are synthetic.
llvm::Error StepInputs::fillTokens(size_t index, const DecoderStep& step, Extents extents) {
  const InputPlan& input = plan.inputs[index];
  const TokenIds& ids = input.ids;
  size_t axis = extents.empty() ? 0 : extents.size() - 1;
  for (size_t each = extents.size(); each-- > 0;)
    if (input.isWord(each, "new"))
      axis = each;
  const int64_t batch = step.batch();
  const bool hasBatch = extents.size() >= 2 && axis != 0 && extents.front() == batch;
  if (hasBatch)
    extents.front() *= ids.rowsPerBatch;
  return fillAll(index, extents, [&](Index at) {
    const int64_t place = hasBatch ? at.front() : 0;
    const auto& row =
        step.tokens[static_cast<size_t>(std::min(place / ids.rowsPerBatch, batch - 1))];
    const int64_t id = row[static_cast<size_t>(at.empty() ? 0 : at[axis]) % row.size()];
    if (!step.isMadeUp)
      return static_cast<double>(id);
    // Each codebook receives separate ids.
    int64_t codebook = place % ids.rowsPerBatch;
    for (size_t other = 1; other < at.size(); ++other)
      codebook += other == axis ? 0 : at[other];
    return static_cast<double>((id + codebook) % ids.countAt(at));
  });
}

llvm::Error StepInputs::fillRandom(size_t index, const DecoderStep& step, const Extents& extents) {
  const llvm::StringRef name = plan.inputs[index].input->name();
  const uint64_t seed = Checksum::of(std::as_bytes(std::span(name)));
  std::uniform_real_distribution<float> any(-1.0f, 1.0f);
  const bool areEmbeddings = name == "inputs_embeds" && extents.size() == 3 &&
                             extents[0] == step.batch() && extents[1] == step.newTokens();
  if (!areEmbeddings && isFilled(index, extents))
    return llvm::Error::success();
  std::mt19937_64 random(seed);
  if (!areEmbeddings)
    return fillAll(index, extents, [&](Index) { return double{any(random)}; });
  // A synthetic row for each token id, [batch, new, width], independent of the token's position.
  return fillAll(index, extents, [&](Index at) {
    const auto& row = step.tokens[static_cast<size_t>(at[0])];
    if (at[2] == 0)
      random.seed(seed + static_cast<uint64_t>(row[static_cast<size_t>(at[1]) % row.size()]));
    return double{any(random)};
  });
}

template <class NumberAt>
llvm::Error StepInputs::fillAll(size_t index, const Extents& extents, NumberAt numberAt) {
  if (llvm::Error error = resize(index, extents, 0))
    return error;
  fillColumns(kept[index].tensor.view, 0, columnsOf(extents), numberAt);
  return llvm::Error::success();
}

template <class NumberAt>
llvm::Error StepInputs::appendColumns(size_t index, const Extents& extents, const DecoderStep& step,
                                      bool hasQueries, NumberAt numberAt) {
  const Filled& last = filled[index];
  const Extents& before = kept[index].tensor.view.shape;
  // Columns for new tokens only differ at each step, and queries see keys up to their own position.
  const InputPlan& input = plan.inputs[index];
  const bool areOfAll = !extents.empty() && !input.isWord(extents.size() - 1, "new") &&
                        !(input.kind == PlanKind::Feed && isAtEnd(input.feed));
  const bool seeAll = !hasQueries || (last.newTokens == 1 && step.newTokens() == 1);
  if (!last.isValid || !areOfAll || !seeAll || !haveSameRows(before, extents))
    return fillAll(index, extents, numberAt);
  const int64_t columns = extents.back();
  const int64_t common = std::min(before.back(), columns);
  const int64_t first = std::min({step.pastLength, last.total, common});
  const int64_t end =
      columns > before.back() ? columns : std::min(std::max(step.total(), last.total), columns);
  if (llvm::Error error = resize(index, extents, common))
    return error;
  fillColumns(kept[index].tensor.view, first, end, numberAt);
  return llvm::Error::success();
}

llvm::Error StepInputs::resize(size_t index, const Extents& extents, int64_t columns) {
  TensorView& view = kept[index].tensor.view;
  if (view.data && view.shape == extents)
    return llvm::Error::success();
  const Value& input = *plan.inputs[index].input;
  const ElementType element = input.type().elementType();
  llvm::Expected<int64_t> count = checkedElementCount(extents);
  if (!count)
    return withNode(count.takeError(), input.name());
  if (*count > mostMadeUpElements)
    return unsupported("input '{}' is too large to be made up", input.name());
  if (!canFill(element))
    return unsupported("input '{}' has element type {}", input.name(), onnxName(element));
  Filled& memory = filled[index];
  if (view.data && *count <= memory.capacity) {
    if (columns != 0)
      respaceRows(view, view.data, columnsOf(extents), columns);
    view = TensorView::contiguous(element, extents, view.data);
    return llvm::Error::success();
  }
  const int64_t room = view.data ? std::min(2 * *count, mostMadeUpElements) : *count;
  llvm::Expected<Tensor> made = Tensor::create(allocator, element, {room});
  if (!made)
    return made.takeError();
  if (columns != 0)
    respaceRows(view, made->view.data, columnsOf(extents), columns);
  made->view = TensorView::contiguous(element, extents, made->view.data);
  kept[index].tensor = std::move(*made);
  memory.capacity = room;
  return llvm::Error::success();
}

} // namespace kvopt::runtime
