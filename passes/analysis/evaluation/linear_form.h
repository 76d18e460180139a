// LinearForm: an element as a sum of elements that are not looked into.
#pragma once

#include "ir/value.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace kvopt::analysis {

/// `weight` times the element of `block` at row-major index `element`. A block is an input of
/// numbers, or a result that is not linear in few elements of other values.
struct ElementTerm {
  const ir::Value* block = nullptr;
  int64_t element = 0;
  double weight = 1;

  bool isSameElement(const ElementTerm& other) const {
    return block == other.block && element == other.element;
  }
  bool operator==(const ElementTerm&) const = default;
};

/// `constant` plus the sum of the terms. There are few terms, each of another element. A form
/// without terms is a number.
struct LinearForm {
  /// More terms are not followed: the sum becomes a block of its own.
  static constexpr size_t maxTerms = 4;

  double constant = 0;
  llvm::SmallVector<ElementTerm, 2> terms;

  static LinearForm number(double value) { return {value, {}}; }
  static LinearForm element(const ir::Value& block, int64_t index) {
    return {0, {ElementTerm{&block, index, 1}}};
  }

  bool isNumber() const { return terms.empty(); }
  /// The element that this is, unchanged; null where it is something else.
  const ElementTerm* asElement() const {
    return terms.size() == 1 && constant == 0 && terms.front().weight == 1 ? &terms.front()
                                                                           : nullptr;
  }

  void scale(double by);
  /// False, and the form is not to be used, where there would be too many terms.
  [[nodiscard]] bool add(const LinearForm& other, double by = 1);

  /// Terms in order of their elements, for comparison.
  bool operator==(const LinearForm&) const = default;
};

/// Equal forms hash equally.
llvm::hash_code hash_value(const LinearForm& form);

struct FormHash {
  size_t operator()(const LinearForm& form) const { return hash_value(form); }
};
using FormIndex = std::unordered_map<LinearForm, int64_t, FormHash>;

/// Where each form is; nullopt where two are the same, or one is a number.
std::optional<FormIndex> indexForms(llvm::ArrayRef<LinearForm> forms);

} // namespace kvopt::analysis
