// Expressions over index variables: one element of a mask as a function of its index.
#pragma once

#include "ir/value.h"
#include "passes/analysis/mask/index_space.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"

#include <deque>

namespace kvopt::analysis {

/// A scalar, boolean or numeric. Expressions are unique: equal expressions have one address, and
/// one address is one value at one index.
struct MaskExpression {
  enum class Kind : uint8_t {
    // Numeric.
    Integer, ///< `dim`; also a float that holds an integer
    Number,  ///< `number`: not an integer, or infinite or huge
    Sum,     ///< sum of `operands`
    Select,  ///< operands[0] ? operands[1] : operands[2]
    // Boolean.
    False,
    True,
    AtLeastZero, ///< dim >= 0
    IsZero,      ///< dim == 0
    IsNotZero,   ///< dim != 0
    Not,         ///< negation of a Leaf or an Apply
    And,
    Or,
    // Either.
    Leaf,  ///< the element of tensor `value` at index `operands`
    Apply, ///< function `name` of `operands`
    Opaque ///< not interpreted, and equal to no other expression; depends on `value` if that is set
  };

  Kind kind = Kind::Opaque;
  bool isBoolean = false;
  IndexSet variables = noIndices; ///< the index variables it may depend on
  unsigned id = 0;                ///< number in order of creation
  unsigned depth = 0;
  unsigned leaves = 1; ///< leaves of a tree of Selects
  ir::Dim dim;
  double number = 0;
  const ir::Value* value = nullptr;
  llvm::StringRef name;
  llvm::SmallVector<const MaskExpression*, 3> operands;

  bool is(Kind other) const { return kind == other; }
  /// Value of a numeric constant.
  std::optional<double> constant() const;
};

using ExprRef = const MaskExpression*;
using ExprList = llvm::ArrayRef<ExprRef>;
using ExprVector = llvm::SmallVector<ExprRef, 4>;

/// Creates expressions in simplified form: expressions that are provably constant within `space`
/// become constants, conjunctions omit parts that other parts imply, and negations are applied to
/// atoms only.
class MaskExpressions {
public:
  explicit MaskExpressions(IndexSpace indexSpace) : range(std::move(indexSpace)) {}
  MaskExpressions(const MaskExpressions&) = delete;
  MaskExpressions& operator=(const MaskExpressions&) = delete;

  const IndexSpace& space() const { return range; }
  /// See IndexSpace. Existing expressions do not change.
  void learnNonNegative(const ir::Dim& dim) { range.learnNonNegative(dim); }
  size_t size() const { return storage.size(); }
  unsigned comparisons() const { return effort; }

  ExprRef integer(const ir::Dim& dim);
  ExprRef number(double value);
  /// The number, rounded to `type`.
  ExprRef number(double value, ir::ElementType type);
  ExprRef leaf(const ir::Value& value, ExprList index);
  /// An unknown expression that depends on `value`, if given.
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
  /// Whether a implies b, if that can be proved.
  bool implies(ExprRef a, ExprRef b) const;

  /// `condition` ? a : b, for a and b both boolean or both numeric.
  ExprRef select(ExprRef condition, ExprRef a, ExprRef b);

  /// Arithmetic in `type`. Division and remainder follow ONNX: integer division rounds towards
  /// zero, and the remainder has the divisor's sign.
  ExprRef add(ExprRef a, ExprRef b, ir::ElementType type);
  ExprRef subtract(ExprRef a, ExprRef b, ir::ElementType type);
  ExprRef multiply(ExprRef a, ExprRef b, ir::ElementType type);
  ExprRef divide(ExprRef a, ExprRef b, ir::ElementType type);
  ExprRef remainder(ExprRef a, ExprRef b, ir::ElementType type);
  ExprRef smaller(ExprRef a, ExprRef b, ir::ElementType type);
  ExprRef larger(ExprRef a, ExprRef b, ir::ElementType type);

  /// -1, 0 or 1.
  ExprRef sign(ExprRef a, ir::ElementType type);
  /// f applied to each end of the tree of selects `a`; null if f returns null for one.
  ExprRef ofEnds(ExprRef a, llvm::function_ref<ExprRef(ExprRef)> f);

  ExprRef less(ExprRef a, ExprRef b);
  ExprRef lessOrEqual(ExprRef a, ExprRef b);
  ExprRef equal(ExprRef a, ExprRef b);
  ExprRef cast(ExprRef a, ir::ElementType from, ir::ElementType to);

private:
  ExprRef unique(MaskExpression expression);
  ExprRef rawList(MaskExpression::Kind kind, llvm::SmallVectorImpl<ExprRef>& parts);
  ExprRef isNotZero(const ir::Dim& dim);
  /// Whether a >= b for two numbers, if that can be proved.
  bool isAtLeast(ExprRef a, ExprRef b) const;
  bool impliesAt(ExprRef a, ExprRef b, unsigned depth) const;
  /// Whether a and b exclude each other.
  bool excludes(ExprRef a, ExprRef b) const { return excludesAt(a, b, 0); }
  bool excludesAt(ExprRef a, ExprRef b, unsigned depth) const;
  bool simplify(llvm::SmallVectorImpl<ExprRef>& parts);
  ExprRef under(ExprList given, ExprRef predicate, unsigned depth);
  /// Expands a sum of selects into a select of sums.
  ExprRef expanded(ExprRef sum, ir::ElementType type);
  ExprRef sumOfTrees(ExprRef a, ExprRef b, ir::ElementType type);
  /// f applied to every pair of ends of the Select trees a and b if the result stays small; null
  /// otherwise.
  ExprRef distribute(ExprRef a, ExprRef b, llvm::function_ref<ExprRef(ExprRef, ExprRef)> f);
  ExprRef nonZero(ExprRef a);
  ExprRef compare(llvm::StringRef name, ExprRef a, ExprRef b);

  IndexSpace range;
  mutable unsigned effort = 0; ///< comparisons so far; bounds simplification
  std::deque<MaskExpression> storage;
  llvm::DenseMap<unsigned, llvm::SmallVector<unsigned, 1>> byHash;
  llvm::DenseMap<ExprRef, ExprRef> negations; ///< negations of conjunctions and disjunctions
};

/// Whether the type represents indices exactly: 32- and 64-bit integers and floats.
bool holdsIndices(ir::ElementType type);

} // namespace kvopt::analysis
