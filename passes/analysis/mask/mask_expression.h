// Expressions over index variables: what one element of a mask is, as a function of its index.
#pragma once

#include "ir/value.h"
#include "passes/analysis/mask/index_space.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"

#include <deque>

namespace kvopt::analysis {

/// One scalar, boolean or numeric. Expressions are unique: equal ones have one address, and one
/// address is one value at one index.
struct MaskExpression {
  enum class Kind : uint8_t {
    // Numeric.
    Integer, ///< `dim`; also a float that holds an integer
    Number,  ///< `number`: no integer, or an infinite or huge one
    Sum,     ///< of `operands`
    Select,  ///< operands[0] ? operands[1] : operands[2]
    // Boolean.
    False,
    True,
    AtLeastZero, ///< dim >= 0
    IsZero,      ///< dim == 0
    IsNotZero,   ///< dim != 0
    Not,         ///< of a Leaf or an Apply
    And,
    Or,
    // Either.
    Leaf,  ///< the element of tensor `value` at index `operands`
    Apply, ///< function `name` of `operands`
    Opaque ///< not interpreted, and equal to nothing else; depends on `value` if that is set
  };

  Kind kind = Kind::Opaque;
  bool isBoolean = false;
  IndexSet variables = noIndices; ///< the index variables it may depend on
  unsigned id = 0;                ///< in order of creation
  unsigned depth = 0;
  unsigned leaves = 1; ///< of a tree of Selects
  ir::Dim dim;
  double number = 0;
  const ir::Value* value = nullptr;
  llvm::StringRef name;
  llvm::SmallVector<const MaskExpression*, 3> operands;

  bool is(Kind other) const { return kind == other; }
  /// The value of a numeric constant.
  std::optional<double> constant() const;
};

using ExprRef = const MaskExpression*;
using ExprList = llvm::ArrayRef<ExprRef>;
using ExprVector = llvm::SmallVector<ExprRef, 4>;

/// Creates expressions, in simple forms: what it can prove within `space` to be constant is
/// constant, conjunctions hold nothing that their other parts imply, negations stand at atoms.
class MaskExpressions {
public:
  explicit MaskExpressions(IndexSpace indexSpace) : range(std::move(indexSpace)) {}
  MaskExpressions(const MaskExpressions&) = delete;
  MaskExpressions& operator=(const MaskExpressions&) = delete;

  const IndexSpace& space() const { return range; }
  /// See IndexSpace. Expressions made before stay as they are.
  void learnNonNegative(const ir::Dim& dim) { range.learnNonNegative(dim); }
  size_t size() const { return storage.size(); }
  unsigned comparisons() const { return effort; }

  ExprRef integer(const ir::Dim& dim);
  ExprRef number(double value);
  /// The number as a value of `type` holds it.
  ExprRef number(double value, ir::ElementType type);
  ExprRef leaf(const ir::Value& value, ExprList index);
  /// Something unknown that depends on `value`, if any.
  ExprRef opaque(const ir::Value* value, bool isBoolean, IndexSet variables = allIndices);
  ExprRef apply(llvm::StringRef name, ExprList operands, bool isBoolean);

  ExprRef boolean(bool value);
  ExprRef atLeastZero(const ir::Dim& dim);
  ExprRef isZero(const ir::Dim& dim);
  ExprRef negate(ExprRef predicate);
  ExprRef both(ExprRef a, ExprRef b) { return conjunction({a, b}); }
  ExprRef either(ExprRef a, ExprRef b) { return disjunction({a, b}); }
  ExprRef conjunction(ExprList parts);
  ExprRef disjunction(ExprList parts);
  /// a implies b, where that can be proved.
  bool implies(ExprRef a, ExprRef b) const;

  /// `condition` ? a : b, boolean or numeric as a and b are.
  ExprRef select(ExprRef condition, ExprRef a, ExprRef b);

  /// Arithmetic in `type`. Division and remainder are ONNX's: integers divide towards zero, the
  /// remainder has the divisor's sign.
  ExprRef add(ExprRef a, ExprRef b, ir::ElementType type);
  ExprRef subtract(ExprRef a, ExprRef b, ir::ElementType type);
  ExprRef multiply(ExprRef a, ExprRef b, ir::ElementType type);
  ExprRef divide(ExprRef a, ExprRef b, ir::ElementType type);
  ExprRef remainder(ExprRef a, ExprRef b, ir::ElementType type);
  ExprRef smaller(ExprRef a, ExprRef b, ir::ElementType type);
  ExprRef larger(ExprRef a, ExprRef b, ir::ElementType type);

  /// -1, 0 or 1.
  ExprRef sign(ExprRef a, ir::ElementType type);
  /// The function of each end of the tree of selects `a`; null where f gives null for one.
  ExprRef ofEnds(ExprRef a, llvm::function_ref<ExprRef(ExprRef)> f);

  ExprRef less(ExprRef a, ExprRef b);
  ExprRef lessOrEqual(ExprRef a, ExprRef b);
  ExprRef equal(ExprRef a, ExprRef b);
  ExprRef cast(ExprRef a, ir::ElementType from, ir::ElementType to);

private:
  ExprRef unique(MaskExpression expression);
  ExprRef rawList(MaskExpression::Kind kind, llvm::SmallVectorImpl<ExprRef>& parts);
  ExprRef isNotZero(const ir::Dim& dim);
  /// a >= b for two numbers, where that can be proved.
  bool isAtLeast(ExprRef a, ExprRef b) const;
  bool impliesAt(ExprRef a, ExprRef b, unsigned depth) const;
  /// Whether a and b exclude each other.
  bool excludes(ExprRef a, ExprRef b) const { return excludesAt(a, b, 0); }
  bool excludesAt(ExprRef a, ExprRef b, unsigned depth) const;
  bool simplify(llvm::SmallVectorImpl<ExprRef>& parts);
  ExprRef under(ExprList given, ExprRef predicate, unsigned depth);
  /// A sum of selects as a select of sums.
  ExprRef expanded(ExprRef sum, ir::ElementType type);
  ExprRef sumOfTrees(ExprRef a, ExprRef b, ir::ElementType type);
  /// f of every end of the Select trees a and b, if that stays small; null otherwise.
  ExprRef distribute(ExprRef a, ExprRef b, llvm::function_ref<ExprRef(ExprRef, ExprRef)> f);
  ExprRef nonZero(ExprRef a);
  ExprRef compare(llvm::StringRef name, ExprRef a, ExprRef b);

  IndexSpace range;
  mutable unsigned effort = 0; ///< comparisons of predicates so far: simplification is bounded
  std::deque<MaskExpression> storage;
  llvm::DenseMap<unsigned, llvm::SmallVector<unsigned, 1>> byHash;
  llvm::DenseMap<ExprRef, ExprRef> negations; ///< of conjunctions and disjunctions
};

/// Whether a numeric value is an extent-sized integer in every element type that holds it.
bool holdsIndices(ir::ElementType type);

} // namespace kvopt::analysis
