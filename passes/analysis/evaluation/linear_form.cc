// Sums of elements.
#include "passes/analysis/evaluation/linear_form.h"

#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/STLExtras.h"

#include <bit>
#include <functional>

namespace kvopt::analysis {

namespace {

bool comesBefore(const ElementTerm& a, const ElementTerm& b) {
  return a.block == b.block ? a.element < b.element : std::less<>()(a.block, b.block);
}

} // namespace

void LinearForm::scale(double by) {
  constant *= by;
  if (by == 0)
    terms.clear();
  for (ElementTerm& term : terms)
    term.weight *= by;
}

bool LinearForm::add(const LinearForm& other, double by) {
  if (by == 0)
    return true;
  constant += other.constant * by;
  for (const ElementTerm& term : other.terms) {
    const auto place = llvm::lower_bound(terms, term, comesBefore);
    if (place == terms.end() || !place->isSameElement(term)) {
      terms.insert(place, ElementTerm{term.block, term.element, term.weight * by});
      continue;
    }
    place->weight += term.weight * by;
    if (place->weight == 0)
      terms.erase(place);
  }
  return terms.size() <= maxTerms;
}

llvm::hash_code hash_value(const LinearForm& form) {
  llvm::hash_code hash = llvm::hash_value(std::bit_cast<uint64_t>(form.constant + 0.0));
  for (const ElementTerm& term : form.terms)
    hash = llvm::hash_combine(hash, term.block, term.element,
                              std::bit_cast<uint64_t>(term.weight + 0.0));
  return hash;
}

std::optional<FormIndex> indexForms(llvm::ArrayRef<LinearForm> forms) {
  FormIndex index;
  for (size_t i = 0; i < forms.size(); ++i)
    if (forms[i].isNumber() || !index.try_emplace(forms[i], static_cast<int64_t>(i)).second)
      return std::nullopt;
  return index;
}

} // namespace kvopt::analysis
