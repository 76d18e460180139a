// The forward walk from one input.
#include "passes/analysis/interface/input_readers.h"

#include "ir/movement.h"
#include "passes/analysis/movement/uniform_value.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// How the elements of a value follow from those of the input.
struct Path {
  bool isComplemented = false; ///< 1 became 0, true became false
  bool isTruth = false;        ///< compared or complemented: zeros and ones
};

/// Whether the results hold elements of the operand and, perhaps, others.
bool keepsElements(const Use& use) {
  const Node& node = use.user();
  bool isChanged =
      node.op().isOnnx() && llvm::StringSwitch<bool>(node.op().type())
                                .Cases("Clip", "Trilu", "Dropout", "GatherElements", "Pad", true)
                                .Default(false);
  return isMoved(use) || (isChanged && use.operandIndex() == 0);
}

bool isComparison(llvm::StringRef type) {
  return llvm::StringSwitch<bool>(type)
      .Cases("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", true)
      .Default(false);
}

/// The number that all elements of an operand are known to be.
std::optional<double> onlyNumber(const Value* value) {
  return value ? uniformValue(*value) : std::nullopt;
}

/// What hides a key when it is added to its score.
bool isVeryNegative(const Value* value) {
  constexpr double least = -1e3;
  std::optional<double> number = onlyNumber(value);
  return number && *number <= least;
}

/// Whether a value is what a softmax gives.
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

/// The operand of an attention operator that is a mask or a bias of its scores.
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
  if (type == "GroupQueryAttention" && operand == 5)
    return LengthFeed::TotalLengthPerBatchMinusOne;
  if (type == "GroupQueryAttention" && operand == 6)
    return LengthFeed::TotalLength;
  if (node.op().isOnnx() && type == "Attention" && operand == 6)
    return LengthFeed::TotalLengthPerBatch;
  if (type == "TensorScatter" && operand == 2)
    return LengthFeed::PastLengthPerBatch;
  if (type == "PagedAttention" && operand == 6)
    return LengthFeed::PastLengthPerBatch;
  if ((type == "DecoderMaskedMultiHeadAttention" && operand == 7) ||
      (node.op() == OpName("ai.kvopt::Sdpa") && operand == 5))
    return LengthFeed::PastLength;
  return std::nullopt;
}

class Walk {
public:
  Walk(const Value& from, size_t& budget) : holdsIntegers(isInteger(from.type().elementType())) {
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

  void noteMask(bool hidesByOne) {
    found.isMask = true;
    found.hidesByOne = hidesByOne;
  }

  void visit(const Use& use, Path path) {
    const Node& node = use.user();
    const unsigned operand = use.operandIndex();
    llvm::StringRef type = node.op().type();
    if (std::optional<LengthFeed> feed = fusedLength(node, operand)) {
      found.fused = feed;
      return;
    }
    if (isMaskOperand(node, operand)) {
      noteMask(path.isComplemented);
      found.isAdded |= !path.isTruth;
      return;
    }
    if (keepsElements(use))
      return pushResults(node, path);
    if (!node.op().isOnnx())
      return;
    if (type == "Not")
      return pushResults(node, {!path.isComplemented, true});
    if (type == "And" || type == "Or")
      return pushResults(node, {path.isComplemented, true});
    if (isComparison(type))
      return visitComparison(node, operand, path);
    if (type == "Where")
      return visitWhere(node, operand, path);
    if (type == "Softmax") {
      noteMask(path.isComplemented);
      found.isAdded |= !path.isTruth;
      return;
    }
    if (type == "Add" || type == "Sub" || type == "Sum")
      return visitSum(node, operand, path);
    if (type == "Mul" || type == "Div")
      return visitProduct(node, operand, path);
    visitIndex(node, operand);
  }

  void visitComparison(const Node& node, unsigned operand, Path path) {
    const Value* other = node.operand(1 - operand);
    if (comesFromInput(other)) {
      found.isSelfCompared = true;
      return;
    }
    std::optional<double> number = onlyNumber(other);
    if (!number) {
      found.isCompared = true;
      return;
    }
    const bool meansZero = node.is("Equal") ? *number == 0
                           : operand == 0   ? node.is("Less") || node.is("LessOrEqual")
                                            : node.is("Greater") || node.is("GreaterOrEqual");
    pushResults(node, {path.isComplemented != meansZero, true});
  }

  void visitWhere(const Node& node, unsigned operand, Path path) {
    if (operand != 0)
      return pushResults(node, path);
    if (isVeryNegative(node.operand(1)))
      return noteMask(!path.isComplemented);
    if (isVeryNegative(node.operand(2)))
      return noteMask(path.isComplemented);
    pushResults(node, {path.isComplemented, true});
  }

  void visitSum(const Node& node, unsigned operand, Path path) {
    if (node.is("Sub") && operand == 1 && onlyNumber(node.operand(0)) == 1.0)
      return pushResults(node, {!path.isComplemented, true});
    if (holdsIntegers)
      found.isSummed = true;
    pushResults(node, path);
  }

  void visitProduct(const Node& node, unsigned operand, Path path) {
    const Value* other = node.operand(1 - operand);
    if (isVeryNegative(other))
      return noteMask(!path.isComplemented);
    if (onlyNumber(other))
      return pushResults(node, path);
    if (path.isTruth || isProbability(*other))
      return noteMask(path.isComplemented);
    found.isAngle |= holdsIntegers;
  }

  void visitIndex(const Node& node, unsigned operand) {
    llvm::StringRef type = node.op().type();
    if ((type == "Gather" || type == "GatherND") && operand == 1)
      return visitLookUp(*node.operand(0));
    if (type == "GatherElements" && operand == 1)
      return visitRepeatedTable(*node.operand(0), node.intAttr("axis", 0));
    if (type == "OneHot" && operand == 0)
      found.tables.push_back({-1, 0});
    if (type == "Range")
      (operand == 0 ? found.isSummed : found.isEnd) |= operand < 2;
    if (type == "Slice")
      (operand == 1 ? found.isSummed : found.isEnd) |= operand < 3;
    if ((type == "ScatterND" || type == "ScatterElements") && operand == 1)
      found.isSummed = true;
    if (type == "MatMul" || type == "Einsum" || type == "Cos" || type == "Sin")
      found.isAngle |= holdsIntegers;
    // Positions and lengths that a mask is counted for.
    if ((type == "CumSum" || type == "ReduceSum") && operand == 0)
      noteMask(false);
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

  const bool holdsIntegers;
  llvm::SmallVector<std::pair<const Value*, Path>, 16> pending;
  llvm::DenseSet<const Value*> seen;
};

} // namespace

InputReaders readersOf(const Value& input, size_t& budget) { return Walk(input, budget).found; }

} // namespace kvopt::analysis
