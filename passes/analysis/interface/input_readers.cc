// The forward walk from one input.
#include "passes/analysis/interface/input_readers.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "ir/ops/contrib/group_query_operands.h"
#include "ir/ops/contrib/paged_operands.h"
#include "passes/analysis/mask/constant_table.h"
#include "passes/analysis/movement/uniform_value.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Relation of a value's elements to those of the input.
struct Path {
  bool isComplemented = false; ///< 1 became 0, true became false
  bool isTruth = false;        ///< compared or complemented: zeros and ones
  bool isCounted = false;      ///< numbers of a Range that ends at the input
  bool isPlace = false;        ///< a distance from other positions
  Dim offset = Dim::fixed(0);  ///< amount added; unknown if it cannot be determined
};

Path truth(bool isComplemented) {
  Path path;
  path.isComplemented = isComplemented;
  path.isTruth = true;
  return path;
}

/// Whether the results hold elements of the operand and possibly others.
bool keepsElements(const Use& use) {
  const Node& node = use.user();
  bool isChanged =
      node.op().isOnnx() && llvm::StringSwitch<bool>(node.op().type())
                                .Cases("Clip", "Trilu", "Dropout", "GatherElements", "Pad", true)
                                .Default(false);
  return isMoved(use) || (isChanged && use.operandIndex() == 0);
}

/// The number that all elements of an operand are known to equal.
std::optional<double> onlyNumber(const Value* value) {
  return value ? uniformValue(*value) : std::nullopt;
}

/// A score that is lower than others by this amount has no probability.
constexpr double leastHiding = 1e3;

/// Whether the value hides a key when it is added to the key's score.
bool isVeryNegative(const Value* value) {
  std::optional<double> number = onlyNumber(value);
  return number && *number <= -leastHiding;
}

/// Whether a value is the result of a softmax.
bool isProbability(const Value& value) {
  constexpr unsigned mostSteps = 8;
  const Value* current = &value;
  for (unsigned step = 0; step < mostSteps && current && current->producer(); ++step) {
    const Node& node = *current->producer();
    if (node.is("Softmax"))
      return true;
    const Use* kept = llvm::find_if(node.operands(), keepsElements);
    if (kept == node.operands().end())
      return false;
    current = kept->value();
  }
  return false;
}

/// Whether the operand of an attention operator is a mask or a bias of its scores.
bool isMaskOperand(const Node& node, unsigned operand) {
  llvm::StringRef type = node.op().type();
  if (node.op().domain() == kvoptDomain)
    return operand >= 3;
  if (node.op().domain() == "com.microsoft")
    return type == "MultiHeadAttention"                ? operand == 4 || operand == 5
           : type == "Attention"                       ? operand == 3 || operand == 5
           : type == "DecoderMaskedMultiHeadAttention" ? operand == 3 || operand == 4
           : type == "GroupQueryAttention"             ? operand == 10
           : type == "BiasSoftmax"                     ? operand == 1
                                                       : false;
  return type == "Attention" && operand == 3;
}

std::optional<LengthFeed> fusedLength(const Node& node, unsigned operand) {
  llvm::StringRef type = node.op().type();
  if (type == "GroupQueryAttention" && operand == gqa::SequenceLengths)
    return LengthFeed::TotalLengthPerBatchMinusOne;
  if (type == "GroupQueryAttention" && operand == gqa::TotalLength)
    return LengthFeed::TotalLength;
  if (node.op().isOnnx() && type == "Attention" && operand == 6)
    return LengthFeed::TotalLengthPerBatch;
  if (type == "TensorScatter" && operand == 2)
    return LengthFeed::PastLengthPerBatch;
  if (type == "PagedAttention" && operand == paged::PastLengths)
    return LengthFeed::PastLengthPerBatch;
  if ((type == "DecoderMaskedMultiHeadAttention" && operand == 7) ||
      (node.op() == OpName("ai.kvopt::Sdpa") && operand == 5))
    return LengthFeed::PastLength;
  return std::nullopt;
}

/// Whether the value provides the rows of a cache: a floating-point input of a graph.
bool isRowsOfInput(const Value& value) {
  const Value* current = &value;
  while (current->producer() && movementKind(*current->producer()))
    current = movedOperand(*current->producer());
  return current->isGraphInput() && !current->isInitializer() &&
         isFloatingPoint(current->type().elementType());
}

/// The number that is added to a length, if it is known.
Dim knownNumber(const Value* value) {
  const auto elements = value ? value->knownIntegers() : std::nullopt;
  return elements && elements->size() == 1 ? elements->front() : Dim::unknown();
}

/// The input with one element that a value equals after movement or conversion; null for others.
const Value* scalarInput(const Value* value) {
  while (value && value->producer() && movementKind(*value->producer()))
    value = movedOperand(*value->producer());
  const bool isOne = value && value->type().hasRank() &&
                     (value->type().rank() == 0 ||
                      (value->type().rank() == 1 && value->type().dim(0).value() == 1));
  return isOne && value->isGraphInput() && !value->isInitializer() ? value : nullptr;
}

/// Whether a value is cut from a constant triangle or band that hides keys.
bool isTriangle(const Value& value) {
  constexpr double least = -100;
  const Value* current = &value;
  while (current->producer() && !current->constant() && movementKind(*current->producer()))
    current = movedOperand(*current->producer());
  const auto table =
      current->constant() ? recognizeTable(*current->constant()) : std::optional<ConstantTable>();
  auto hides = [](const ConstantTable::Band& band) { return band.value <= least; };
  return table && table->form == ConstantTable::Form::Banded && llvm::any_of(table->bands, hides);
}

/// Whether the value holds only zeros and ones, as far as its producer shows.
bool isTruthLike(const Value& value) {
  const Value* current = &value;
  while (current->producer() && movementKind(*current->producer())) {
    current = movedOperand(*current->producer());
    if (current->type().elementType() == ElementType::Bool)
      return true;
  }
  constexpr int64_t mostElements = 4096;
  const TensorData* constant = current->constant();
  const auto numbers = constant && isInteger(constant->elementType())
                           ? integerValues(*constant, mostElements)
                           : std::nullopt;
  return numbers &&
         llvm::all_of(*numbers, [](int64_t number) { return number == 0 || number == 1; });
}

class Walk {
public:
  Walk(const Value& from, size_t& budget)
      : origin(from), holdsIntegers(isInteger(from.type().elementType())) {
    push(from, {});
    while (!pending.empty()) {
      auto [value, path] = pending.pop_back_val();
      for (const Use& use : value->uses()) {
        if (budget == 0) {
          found = InputReaders();
          return;
        }
        --budget;
        visit(use, path);
      }
    }
  }

  InputReaders found;

private:
  void push(const Value& value, Path path) {
    if (!value.isAbsent() && seen.insert(&value).second)
      pending.push_back({&value, path});
  }
  void pushResults(const Node& node, Path path) {
    for (const Value& result : node.results())
      push(result, path);
  }
  bool comesFromInput(const Value* value) const { return value && seen.count(value); }

  void noteMask(bool hidesByOne, bool isCertain = true) {
    found.isUncertainMask |= !isCertain || (found.isMask && found.hidesByOne != hidesByOne);
    found.isMask = true;
    found.hidesByOne = hidesByOne;
  }

  void visit(const Use& use, Path path) {
    const Node& node = use.user();
    const unsigned operand = use.operandIndex();
    llvm::StringRef type = node.op().type();
    if (std::optional<LengthFeed> feed = fusedLength(node, operand))
      return note(found.lengths, *feed, path, node);
    if (isMaskOperand(node, operand)) {
      noteMask(path.isComplemented);
      found.isAdded |= !path.isTruth;
      return;
    }
    if (keepsElements(use))
      return pushResults(node, path);
    if (!node.op().isOnnx())
      return;
    const std::optional<ElementFunction> function = elementFunction(node);
    if (type == "Not")
      return pushResults(node, truth(!path.isComplemented));
    if (type == "And" || type == "Or")
      return pushResults(node, truth(path.isComplemented));
    if (function == ElementFunction::Comparison)
      return visitComparison(node, operand, path);
    if (type == "Where")
      return visitWhere(node, operand, path);
    if (type == "Softmax") {
      noteMask(path.isComplemented, path.isTruth || !holdsIntegers);
      found.isAdded |= !path.isTruth;
      return;
    }
    if (type == "Add" || type == "Sub" || type == "Sum")
      return visitSum(node, operand, path);
    if (type == "Mul" || type == "Div")
      return visitProduct(node, operand, path);
    visitIndex(node, operand, path);
  }

  void note(std::vector<InputReaders::Length>& list, LengthFeed feed, const Path& path,
            const Node& node) {
    // Layers repeat the readers of the first.
    constexpr size_t mostKept = 8;
    auto isKnown = [&](const InputReaders::Length& known) {
      return known.feed == feed && known.offset == path.offset;
    };
    if (list.size() < mostKept && llvm::none_of(list, isKnown))
      list.push_back({feed, path.offset, node.describe()});
  }

  void visitComparison(const Node& node, unsigned operand, Path path) {
    const Value* other = node.operand(1 - operand);
    // One number has no other elements to be compared with.
    if (comesFromInput(other) && !scalarInput(&origin)) {
      found.isSelfCompared = true;
      return;
    }
    std::optional<double> number = onlyNumber(other);
    if (!number || path.isPlace) {
      found.isCompared = true;
      return;
    }
    const bool meansZero = node.is("Equal") ? *number == 0
                           : operand == 0   ? node.is("Less") || node.is("LessOrEqual")
                                            : node.is("Greater") || node.is("GreaterOrEqual");
    pushResults(node, truth(path.isComplemented != meansZero));
  }

  void visitWhere(const Node& node, unsigned operand, Path path) {
    if (operand != 0)
      return pushResults(node, path);
    if (isVeryNegative(node.operand(1)))
      return noteMask(!path.isComplemented);
    if (isVeryNegative(node.operand(2)))
      return noteMask(path.isComplemented);
    pushResults(node, truth(path.isComplemented));
  }

  void visitSum(const Node& node, unsigned operand, Path path) {
    if (node.is("Sub") && operand == 1 && onlyNumber(node.operand(0)) == 1.0)
      return pushResults(node, truth(!path.isComplemented));
    if (holdsIntegers && node.operands().size() == 2)
      visitLengthSum(node, operand, path);
    // A value that is subtracted from scores hides keys where it is one.
    if (node.is("Sub") && operand == 1)
      path.isComplemented = !path.isComplemented;
    pushResults(node, path);
  }

  /// Adding a known number to a length yields another length; adding any other value yields an
  /// index.
  void visitLengthSum(const Node& node, unsigned operand, Path& path) {
    const Value* other = node.operand(1 - operand);
    const Dim number = knownNumber(other);
    const bool isTaken = node.is("Sub") && operand == 1;
    const Value* addend = scalarInput(other);
    found.isCount |= path.isCounted;
    if (node.is("Add") && addend && addend != &origin)
      found.addends.push_back(addend);
    else if (number.isUnknown() && !path.isCounted)
      found.isSummed = true;
    path.isPlace |= other && !onlyNumber(other) && !isTruthLike(*other);
    path.offset = isTaken          ? Dim::unknown()
                  : node.is("Sub") ? path.offset - number
                                   : path.offset + number;
  }

  void visitProduct(const Node& node, unsigned operand, Path path) {
    const Value* other = node.operand(1 - operand);
    if (isVeryNegative(other))
      return noteMask(!path.isComplemented);
    if (const std::optional<double> number = onlyNumber(other)) {
      // A value that hides a key when it is subtracted from the key's score.
      path.isTruth |= *number >= leastHiding;
      return pushResults(node, path);
    }
    const bool keepsProbability = isProbability(*other);
    if (path.isTruth || keepsProbability)
      return noteMask(path.isComplemented, keepsProbability);
    if (isTriangle(*other)) {
      found.isSwitch = true;
      return;
    }
    found.isAngle |= holdsIntegers;
  }

  void visitIndex(const Node& node, unsigned operand, const Path& path) {
    llvm::StringRef type = node.op().type();
    if ((type == "Gather" || type == "GatherND") && operand == 1) {
      found.isBatchIndex |= reordersOutput(node);
      return visitLookUp(*node.operand(0));
    }
    if (type == "GatherElements" && operand == 1)
      return visitRepeatedTable(*node.operand(0), node.intAttr("axis", 0));
    if (type == "OneHot" && operand == 0)
      found.tables.push_back({-1, 0});
    if (type == "Range")
      return visitRange(node, operand, path);
    if (type == "Slice")
      return visitSlice(node, operand, path);
    if ((type == "ScatterND" || type == "ScatterElements") && operand == 1)
      found.isSummed = true;
    if (type == "MatMul" || type == "Einsum" || type == "Cos" || type == "Sin")
      found.isAngle |= holdsIntegers;
    // Positions and lengths that are computed from a mask.
    constexpr unsigned maskRank = 2;
    if ((type == "CumSum" || type == "ReduceSum") && operand == 0 &&
        (!origin.type().hasRank() || origin.type().rank() <= maskRank))
      noteCount(path);
  }

  /// Numbers of keys say nothing about those that scores hide.
  void noteCount(const Path& path) {
    found.isMask = true;
    found.isUncertainMask |= path.isComplemented;
  }

  void visitRange(const Node& node, unsigned operand, Path path) {
    if (operand == 0)
      return note(found.bounds, LengthFeed::PastLength, path, node);
    if (operand != 1)
      return;
    note(found.bounds, LengthFeed::TotalLength, path, node);
    path.isCounted = onlyNumber(node.operand(0)) == 0.0;
    if (path.isCounted)
      pushResults(node, path);
  }

  /// The first row of a slice of a cache is not significant, because a host may drop rows. The last
  /// row is that of the last earlier token.
  void visitSlice(const Node& node, unsigned operand, const Path& path) {
    const bool ofCache = isRowsOfInput(*node.operand(0));
    if (operand == 1 && !ofCache)
      note(found.bounds, LengthFeed::PastLength, path, node);
    if (operand == 2)
      note(found.bounds, ofCache ? LengthFeed::PastLength : LengthFeed::TotalLength, path, node);
  }

  /// Whether a node selects batch rows of a cache that the graph returns.
  static bool reordersOutput(const Node& node) {
    constexpr unsigned fewestAxes = 3;
    const Value& data = *node.operand(0);
    return node.is("Gather") && node.intAttr("axis", 0) == 0 && node.result(0).isGraphOutput() &&
           !data.constant() && isFloatingPoint(data.type().elementType()) &&
           data.type().hasRank() && data.type().rank() >= fewestAxes;
  }

  void visitLookUp(const Value& data) {
    if (data.isGraphInput() && !data.isInitializer()) {
      found.isBatchIndex = true;
      return;
    }
    const TensorType& type = data.type();
    if (!data.constant() || !isFloatingPoint(type.elementType()))
      return;
    found.tables.push_back({type.dim(0).value().value_or(-1), data.constant()->elementCount()});
  }

  /// A table that is repeated for each batch row.
  void visitRepeatedTable(const Value& repeated, int64_t axis) {
    const Value* table = &repeated;
    while (table->producer() && !table->constant() && movementKind(*table->producer()))
      table = movedOperand(*table->producer());
    if (table->constant() && isFloatingPoint(table->type().elementType()))
      found.tables.push_back(
          {repeated.type().dim(axis).value().value_or(-1), table->constant()->elementCount()});
  }

  const Value& origin;
  const bool holdsIntegers;
  llvm::SmallVector<std::pair<const Value*, Path>, 16> pending;
  llvm::DenseSet<const Value*> seen;
};

} // namespace

InputReaders readersOf(const Value& input, size_t& budget) { return Walk(input, budget).found; }

} // namespace kvopt::analysis
