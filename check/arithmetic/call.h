// Call: one node that is evaluated, with its operands and attributes.
#pragma once

#include "check/arithmetic/constants.h"
#include "ir/model.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

namespace kvopt::check {

/// Call of a function whose body is evaluated.
struct FunctionCall {
  const ir::Node* node = nullptr;
  const ir::Function* function = nullptr;
  const FunctionCall* outer = nullptr;
};

using Results = llvm::SmallVector<Ref, 2>;

/// One node with evaluated operands.
class Call {
public:
  /// `needs` says which results are needed, and must outlive the call; null for all of them.
  Call(const ir::Node& evaluated, const FunctionCall* enclosing, llvm::ArrayRef<Ref> values,
       Arithmetic& shared, llvm::function_ref<bool(unsigned result)> needs = nullptr)
      : node(evaluated), operands(values), math(shared), function(enclosing), needed(needs) {}

  const ir::Node& node;
  /// For questions about all operands. What a rule computes with is asked for (in, real), so that
  /// an operand that no rule reads is noticed.
  llvm::ArrayRef<Ref> operands;
  Arithmetic& math;

  const Field& field() const { return math.field; }
  /// Whether a rule must return the result. It may return null for others.
  bool isNeeded(unsigned result) const { return !needed || needed(result); }
  /// The operand; null if it is absent.
  Ref in(unsigned index) const {
    readOperands |= uint64_t(1) << std::min(index, mostRead);
    return index < operands.size() ? operands[index] : nullptr;
  }
  /// The operand with elements of the fields; null if it is absent.
  Ref real(unsigned index) const { return in(index) ? real(in(index)) : nullptr; }
  /// The tensor with elements of the fields. A hollow tensor stays one.
  Ref real(const Ref& tensor) const {
    return math.real(tensor, [&] { return node.describe(); });
  }
  /// Whether the result depends on integers that are open, other than by open elements of its own.
  bool dependsOnOpenIntegers() const;
  /// Whether an operand is hollow, so that results are, too.
  bool isHollow() const;
  /// Whether an element of an operand may be other than a number.
  bool isSpecial() const;
  /// The single hollow result.
  Results hollow(Extents shape) const;

  /// The attribute, resolved through enclosing function calls, or its default; null if absent.
  const ir::Attribute* attribute(llvm::StringRef name) const;
  int64_t integer(llvm::StringRef name, int64_t otherwise) const;
  double number(llvm::StringRef name, double otherwise) const;
  std::string text(llvm::StringRef name, llvm::StringRef otherwise) const;
  std::optional<std::vector<int64_t>> integers(llvm::StringRef name) const;
  /// Whether a rule has asked for an operand or for an attribute.
  bool hasRead(unsigned operand) const { return readOperands >> std::min(operand, mostRead) & 1; }
  bool hasRead(llvm::StringRef attribute) const { return readAttributes.contains(attribute); }
  /// Integers of an attribute, or else of an operand; nullopt if there is neither.
  std::optional<std::vector<int64_t>> integers(llvm::StringRef name, unsigned operand) const;
  /// Version of the operator set of the node's domain.
  int64_t version() const;

  /// Notes that the node's behavior depends on the order of both tensors' elements, which are
  /// integers or known numbers and broadcast to each other. The scope must have equal integers
  /// unless `meets` is false, as for functions that are the same on both sides where they meet.
  /// `side` is 1 or -1 if equal numbers count as those with a larger or with a smaller a.
  void noteThreshold(const Ref& a, const Ref& b, bool meets = true, int side = 0) const;
  /// The same for two numbers.
  void noteThreshold(Growths::Number a, Growths::Number b, bool isExact) const;
  /// Notes that the node makes steps of a number, each `apart` from the next one. A staircase shows
  /// its form once it has left the first step, which is why the scope must have numbers on both
  /// sides of each of its ends, or never come nearer.
  void noteSteps(Growths::Number number, double apart) const;
  /// Notes that results depend on a number whose growth is not traced, if it is not.
  void noteUntraced(GrowthId growth) const;

  /// Notes which entries of a table, along an axis of an operand, one of the node's results has.
  /// What only constants select is not noted, nor entries of other tensors.
  void noteRead(unsigned operand, unsigned axis, llvm::ArrayRef<int64_t> entries,
                llvm::ArrayRef<Ref> selectors, unsigned result = 0) const;
  /// The same for elements of all axes, by their flat indices.
  void noteReadElements(unsigned operand, llvm::ArrayRef<int64_t> elements,
                        const Ref& selector) const;

  /// Notes a failure and returns no results. The model itself fails for these operands.
  Results fail(std::string reason);
  /// The same for a form of the operator that has no rule.
  Results unsupported(std::string reason);
  std::string failure;
  bool isInvalid = false;

private:
  static constexpr unsigned mostRead = 63; ///< further operands count as this one
  void noteDifference(GrowthId difference, double value, bool isExact, int side = 0) const;

  const FunctionCall* function;
  llvm::function_ref<bool(unsigned result)> needed;
  mutable uint64_t readOperands = 0;
  mutable llvm::StringSet<> readAttributes;
};

/// Evaluates a node. Returns no results, and a failure, if it cannot.
using Rule = Results (*)(Call&);
using RuleTable = llvm::StringMap<Rule>; // by OpName::str()

/// The rules of each family of operators.
void addMovementRules(RuleTable& rules);
void addPartRules(RuleTable& rules);
void addIndexRules(RuleTable& rules);
void addIntegerRules(RuleTable& rules);
void addFunctionRules(RuleTable& rules);
void addArithmeticRules(RuleTable& rules);
void addComparisonRules(RuleTable& rules);
void addProductRules(RuleTable& rules);
void addReductionRules(RuleTable& rules);
void addAttentionRules(RuleTable& rules);
void addContribRules(RuleTable& rules);

/// All rules.
RuleTable allRules();

/// An axis as a number in [0, rank); nullopt if it is out of range.
std::optional<unsigned> axisOf(int64_t axis, int64_t rank);

/// Contents of a constant. Weights are floating-point tensors of at least two axes and 512
/// elements. null if they are unavailable or too large.
Ref tensorOf(const ir::TensorData& data);
bool isWeightData(const ir::TensorData& data);

/// Computes each element of the result from the operands' elements at the same place. All kinds are
/// allowed; operands are converted to the fields.
Ref mapReals(Call& call, llvm::ArrayRef<Ref> operands, const Extents& shape,
             llvm::function_ref<Exact(llvm::ArrayRef<Exact>)> compute);
/// a * b, a + b elementwise with elements of the fields, and a product of matrices.
Ref addReals(Call& call, const Ref& a, const Ref& b);
Ref multiplyReals(Call& call, const Ref& a, const Ref& b);
Ref matrixProduct(Call& call, const Ref& a, const Ref& b);
Ref softmaxOf(Call& call, const Ref& scores, unsigned axis);
/// An unknown function of each element, which `name` identifies.
Ref unknownOf(Call& call, llvm::StringRef name, const Ref& operand);
/// A known number as a real scalar.
Ref realScalar(Call& call, double value);
/// x / sqrt(mean(x^2) + epsilon) over the axes from `axis` on; minus the mean first if
/// `isCentered`.
Ref normalized(Call& call, const Ref& input, unsigned axis, bool isCentered, double epsilon);
/// Joins tensors along an axis; null if shapes differ elsewhere.
Ref concatenated(Call& call, llvm::ArrayRef<Ref> parts, unsigned axis);
/// The difference of neighbors along an axis of integers, if there is one for all; else nullopt.
std::optional<double> progression(const Tensor& data, unsigned axis);
/// Converts tensors to one kind.
void unify(Call& call, llvm::MutableArrayRef<Ref> tensors);
uint64_t nameHash(llvm::StringRef name);

} // namespace kvopt::check
