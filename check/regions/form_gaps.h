// FormGaps: why what is known of a value may change beyond the scope.
#pragma once

#include "check/regions/forms.h"
#include "check/regions/plain_numbers.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <set>
#include <string>

namespace kvopt::check {

/// Why three properties of a value may change beyond the scope; null if they may not.
struct FormGap {
  const std::string* shape = nullptr;
  /// Of which elements are other than numbers. Numbers themselves do not count.
  const std::string* pattern = nullptr;
  /// Of integers and known numbers themselves; includes the shape.
  const std::string* contents = nullptr;
};

/// Traces comparisons of sizes that the scope does not show in full (Thresholds) from the nodes
/// that make them to the values that depend on them. What a bound does to a table of numbers does
/// not reach the shape of a sum with this table.
class FormGaps {
public:
  using FormOf = llvm::function_ref<const Form*(const ir::Value& value)>;

  const FormGap& of(const ir::Value& value) const;
  /// Gaps that a node opens: of its own comparisons, and of tables whose entries the scope does not
  /// read. Empty if there is none.
  struct OwnGaps {
    const std::string& compared;
    const std::string& unread;
  };
  /// Adds the results of a node. `formOf` gives the forms of its operands and results.
  void add(const ir::Node& node, const OwnGaps& own, FormOf formOf);
  /// Whether the value is plain (PlainNumbers).
  bool isPlain(const ir::Value& value) { return plain.isPlain(value); }

private:
  /// Adds what an operand's gap means for the node's results.
  void addOperand(FormGap& gap, const ir::Node& node, const ir::Value& operand, FormOf formOf,
                  bool isSpecial);

  llvm::DenseMap<const ir::Value*, FormGap> known;
  std::set<std::string> texts;
  meaning::OperatorFacts operators;
  PlainNumbers plain{operators};
};

} // namespace kvopt::check
