// LinearForm: an element as a linear combination of opaque elements.
#pragma once

#include "ir/value.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace kvopt::analysis {

/// `weight` times the element of `block` at row-major index `element`. A block is an input or a
/// result that is not linear in few elements of other values.
struct ElementTerm {
  const ir::Value* block = nullptr;
  int64_t element = 0;
  double weight = 1;

  bool isSameElement(const ElementTerm& other) const {
    return block == other.block && element == other.element;
  }
  bool operator==(const ElementTerm&) const = default;
};

/// `constant` plus the sum of a few terms, each with a different element. A form without terms is a
/// number.
struct LinearForm {
  /// Maximum number of terms. A longer sum becomes a separate block.
  static constexpr size_t maxTerms = 4;

  double constant = 0;
  llvm::SmallVector<ElementTerm, 2> terms;

  static LinearForm number(double value) { return {value, {}}; }
  static LinearForm element(const ir::Value& block, int64_t index) {
    return {0, {ElementTerm{&block, index, 1}}};
  }

  bool isNumber() const { return terms.empty(); }
  /// The element that the form equals, unchanged; null for any other form.
  const ElementTerm* asElement() const {
    return terms.size() == 1 && constant == 0 && terms.front().weight == 1 ? &terms.front()
                                                                           : nullptr;
  }

  void scale(double by);
  /// Adds `by` times `other`. False if there would be too many terms; the form is then invalid.
  [[nodiscard]] bool add(const LinearForm& other, double by = 1);

  /// Compares terms, which are sorted by their elements.
  bool operator==(const LinearForm&) const = default;
};

/// Equal forms hash equally.
llvm::hash_code hash_value(const LinearForm& form);

struct FormHash {
  size_t operator()(const LinearForm& form) const { return hash_value(form); }
};
using FormIndex = std::unordered_map<LinearForm, int64_t, FormHash>;

/// Index of each form; nullopt if two are equal, or one is a number.
std::optional<FormIndex> indexForms(llvm::ArrayRef<LinearForm> forms);

} // namespace kvopt::analysis
