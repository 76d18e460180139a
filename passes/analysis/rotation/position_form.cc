// Arithmetic of sums of functions of a position.
#include "passes/analysis/rotation/position_form.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::analysis {

namespace {
using Kind = PositionFunction::Kind;
} // namespace

PositionForm PositionForm::number(double value) {
  PositionForm form;
  form.addTerm({value, {}, noAtom});
  return form;
}

PositionForm PositionForm::raw(int64_t atom) {
  PositionForm form;
  form.addTerm({1, {}, atom});
  return form;
}

PositionForm PositionForm::function(const PositionFunction& function, double factor) {
  PositionForm form;
  form.addTerm({factor, function, noAtom});
  return form;
}

std::optional<double> PositionForm::asNumber() const {
  if (sum.empty())
    return 0;
  const FormTerm& only = sum.front();
  if (sum.size() == 1 && only.atom == noAtom && only.function.kind == Kind::One)
    return only.factor;
  return std::nullopt;
}

std::optional<PositionForm::Line> PositionForm::asLine() const {
  Line line;
  for (const FormTerm& term : sum) {
    if (term.atom != noAtom)
      return std::nullopt;
    if (term.function.kind == Kind::One) {
      line.offset = term.factor;
    } else if (term.function.kind == Kind::Position && line.slope == 0) {
      line.slope = term.factor;
      line.source = term.function.source;
    } else {
      return std::nullopt;
    }
  }
  return line.slope != 0 ? std::optional(line) : std::nullopt;
}

bool PositionForm::isPositionFree() const {
  return llvm::all_of(sum, [](const FormTerm& term) { return term.function.kind == Kind::One; });
}

void PositionForm::addTerm(const FormTerm& term) {
  if (term.factor == 0)
    return;
  auto* same = llvm::find_if(sum, [&](const FormTerm& other) {
    return other.atom == term.atom && other.function == term.function;
  });
  if (same == sum.end()) {
    sum.push_back(term);
    return;
  }
  same->factor += term.factor;
  if (same->factor == 0)
    sum.erase(same);
}

void PositionForm::add(const PositionForm& other, double factor) {
  for (const FormTerm& term : other.sum)
    addTerm({term.factor * factor, term.function, term.atom});
}

void PositionForm::scale(double factor) {
  if (factor == 0)
    sum.clear();
  for (FormTerm& term : sum)
    term.factor *= factor;
}

std::optional<PositionForm> PositionForm::product(const PositionForm& a, const PositionForm& b) {
  PositionForm result;
  for (const FormTerm& left : a.sum)
    for (const FormTerm& right : b.sum) {
      if (left.atom != noAtom && right.atom != noAtom)
        return std::nullopt;
      if (left.function.kind != Kind::One && right.function.kind != Kind::One)
        return std::nullopt;
      const FormTerm& moving = left.function.kind != Kind::One ? left : right;
      result.addTerm(
          {left.factor * right.factor, moving.function, std::max(left.atom, right.atom)});
    }
  return result;
}

std::optional<PositionForm> PositionForm::wave(const PositionForm& angle, Kind kind) {
  if (const auto fixed = angle.asNumber())
    return number(kind == Kind::Cosine ? std::cos(*fixed) : std::sin(*fixed));
  const auto line = angle.asLine();
  if (!line)
    return std::nullopt;
  PositionFunction turned;
  turned.kind = kind;
  turned.source = line->source;
  turned.slope = line->slope;
  turned.offset = line->offset;
  return function(turned);
}

} // namespace kvopt::analysis
