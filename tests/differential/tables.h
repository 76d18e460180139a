// The tables of the product that say what an operator computes, asked about one instance.
#pragma once

#include "tests/differential/instance.h"

#include "llvm/Support/Error.h"

namespace kvopt::differential {

/// What a table says of an instance whose results are known.
struct Verdict {
  enum class Kind {
    NotThere, ///< it does not know the operator in this form, or not for these operands
    Equal,
    Different,
  };
  Kind kind = Kind::NotThere;
  std::string text; ///< the difference, or why it does not know

  static Verdict notThere(std::string why) { return {Kind::NotThere, std::move(why)}; }
  static Verdict of(std::string difference) {
    return {difference.empty() ? Kind::Equal : Kind::Different, std::move(difference)};
  }
};

/// A table. `dice` choose how the operands are given to it, such as constants or inputs.
struct Table {
  const char* name;
  Verdict (*compare)(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice);
};

/// All tables other than the kernels.
llvm::ArrayRef<Table> tables();

/// The results that the kernel computes.
llvm::Expected<std::vector<Numbers>> kernelResults(const Instance& instance);
/// The results that evaluation, or the checker, computes from numbers. They are the expected ones
/// of operators without a kernel. Empty if there are none.
std::vector<Numbers> evaluatedResults(const Instance& instance);
std::vector<Numbers> checkedResults(const Instance& instance);
/// Those of the definition, where there are no others. Empty if it is not defined.
std::vector<Numbers> definedResults(const Instance& instance);

Verdict compareDefinitions(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice);
Verdict compareShapes(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice);
Verdict compareSymbols(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice);
Verdict compareCheck(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice);
Verdict compareFields(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice);
Verdict compareHollow(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice);
Verdict compareNumbers(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice);
Verdict compareForms(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice);

/// Symbols for extents, with their values.
class Symbols {
public:
  explicit Symbols(Dice& chosen) : dice(chosen) {}
  /// The extent itself, or a symbol of its own, or one that equal extents share, or a sum of such a
  /// symbol and a number.
  ir::Dim dimOf(int64_t extent);
  ir::TensorType typeOf(const Numbers& numbers);
  /// An input whose extents may be symbols.
  ir::Value& inputOf(ir::Graph& graph, const Instance& instance, unsigned operand);
  std::optional<int64_t> valueOf(llvm::StringRef symbol) const;
  const std::vector<std::pair<std::string, int64_t>>& all() const { return values; }

private:
  Dice& dice;
  std::vector<std::pair<std::string, int64_t>> values;
};

/// Whether two numbers are the same for the instance's accuracy.
bool isSame(const Instance& instance, ir::ElementType type, Number expected, Number found);
std::string textOf(llvm::ArrayRef<int64_t> extents);
/// How extents differ; empty if they do not.
std::string differenceOf(unsigned result, const Numbers& expected, llvm::ArrayRef<int64_t> extents);
/// How an element differs; empty if it does not.
std::string differenceOf(const Instance& instance, unsigned result, const Numbers& expected,
                         size_t element, Number found);

} // namespace kvopt::differential
