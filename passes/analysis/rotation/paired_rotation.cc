// Matching the forms of columns with a rotation.
#include "passes/analysis/rotation/paired_rotation.h"

#include "passes/analysis/rotation/column_forms.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

#include <map>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// A product without one of its atoms: the factor of that atom.
struct RotationTerm {
  int64_t column = 0; ///< column of x
  ColumnForm::Product factor;
};

class PairReader {
public:
  PairReader(Value& rotatedRows, bool tokensFirst)
      : rows(rotatedRows), areTokensFirst(tokensFirst) {}

  std::optional<PairedRotation> run() {
    ColumnForms all;
    const auto columns = all.of(rows);
    if (!columns || columns->size() % 2 != 0)
      return std::nullopt;
    for (const Value* candidate : all.values())
      if (auto rotation = rotationOf(*candidate))
        return rotation;
    return std::nullopt;
  }

private:
  /// The rotation of the columns of `x`.
  std::optional<PairedRotation> rotationOf(const Value& x) {
    if (&x == &rows || !hasShapeOfRows(x))
      return std::nullopt;
    ColumnForms forms(&x);
    const auto columns = forms.of(rows);
    const auto own = forms.of(x);
    if (!columns || !own || own->size() != columns->size())
      return std::nullopt;
    std::map<unsigned, int64_t> columnOfAtom;
    for (size_t i = 0; i < own->size(); ++i)
      columnOfAtom[(*own)[i].products.front().atoms.front()] = static_cast<int64_t>(i);
    std::vector<std::vector<RotationTerm>> terms;
    for (const ColumnForm& form : *columns) {
      auto read = termsOf(form, columnOfAtom);
      if (!read)
        return std::nullopt;
      terms.push_back(std::move(*read));
    }
    return pairsOf(x, terms, forms);
  }

  static std::optional<std::vector<RotationTerm>>
  termsOf(const ColumnForm& form, const std::map<unsigned, int64_t>& columnOfAtom) {
    std::vector<RotationTerm> terms;
    for (const ColumnForm::Product& product : form.products) {
      RotationTerm term;
      term.factor.sign = product.sign;
      unsigned own = 0;
      for (unsigned atom : product.atoms) {
        const auto found = columnOfAtom.find(atom);
        if (found == columnOfAtom.end()) {
          term.factor.atoms.push_back(atom);
          continue;
        }
        term.column = found->second;
        ++own;
      }
      if (own != 1)
        return std::nullopt;
      terms.push_back(std::move(term));
    }
    return terms;
  }

  std::optional<PairedRotation>
  pairsOf(const Value& x, llvm::ArrayRef<std::vector<RotationTerm>> terms, ColumnForms& forms) {
    const auto width = static_cast<int64_t>(terms.size());
    int64_t rotated = 0;
    while (rotated < width && terms[static_cast<size_t>(rotated)].size() == 2)
      ++rotated;
    if (rotated == 0 || rotated % 2 != 0)
      return std::nullopt;
    for (int64_t column = rotated; column < width; ++column)
      if (!isKept(terms[static_cast<size_t>(column)], column))
        return std::nullopt;
    for (bool interleaved : {false, true}) {
      if (interleaved && rotated == 2)
        continue;
      PairedRotation rotation;
      rotation.areTokensFirst = areTokensFirst;
      rotation.pairs = rotated / 2;
      rotation.interleaved = interleaved;
      std::vector<ColumnForm> cosines;
      std::vector<ColumnForm> sines;
      if (!readFactors(rotation, terms, cosines, sines))
        continue;
      const auto cosine = findColumns(cosines, forms);
      const auto sine = findColumns(sines, forms);
      if (!cosine || !sine)
        return std::nullopt;
      rotation.cosines = *cosine;
      rotation.sines = *sine;
      rotation.rows = const_cast<Value*>(&x); // NOLINT: the caller's graph is not const
      return rotation;
    }
    return std::nullopt;
  }

  static bool isKept(llvm::ArrayRef<RotationTerm> terms, int64_t column) {
    return terms.size() == 1 && terms.front().column == column && terms.front().factor.sign == 1 &&
           terms.front().factor.atoms.empty();
  }

  /// Whether the columns are rotated in pairs of this order, with one cosine and one sine for both
  /// columns of a pair.
  static bool readFactors(const PairedRotation& rotation,
                          llvm::ArrayRef<std::vector<RotationTerm>> terms,
                          std::vector<ColumnForm>& cosines, std::vector<ColumnForm>& sines) {
    for (int64_t pair = 0; pair < rotation.pairs; ++pair) {
      const int64_t low = rotation.interleaved ? 2 * pair : pair;
      const int64_t high = rotation.interleaved ? low + 1 : pair + rotation.pairs;
      std::optional<ColumnForm> cosine;
      std::optional<ColumnForm> sine;
      for (int64_t column : {low, high})
        for (const RotationTerm& term : terms[static_cast<size_t>(column)]) {
          const bool isOwn = term.column == column;
          if (!isOwn && term.column != (column == low ? high : low))
            return false;
          ColumnForm factor;
          factor.products.push_back(term.factor);
          if (!isOwn && column == low)
            factor.products.front().sign = -term.factor.sign;
          std::optional<ColumnForm>& known = isOwn ? cosine : sine;
          if (known && *known != factor)
            return false;
          known = std::move(factor);
        }
      if (!cosine || !sine)
        return false;
      cosines.push_back(std::move(*cosine));
      sines.push_back(std::move(*sine));
    }
    return true;
  }

  /// A value that has these columns at equal distances and is the same for all heads.
  std::optional<StridedColumns> findColumns(llvm::ArrayRef<ColumnForm> wanted, ColumnForms& forms) {
    for (const Value* value : forms.values()) {
      if (!isSameForHeads(*value))
        continue;
      const auto columns = forms.of(*value);
      const auto width = static_cast<int64_t>(columns->size());
      const auto count = static_cast<int64_t>(wanted.size());
      for (int64_t step : {1, 2})
        for (int64_t first = 0; first + (count - 1) * step < width; ++first) {
          const auto isThere = [&](int64_t i) {
            return (*columns)[static_cast<size_t>(first + i * step)] ==
                   wanted[static_cast<size_t>(i)];
          };
          int64_t i = 0;
          while (i < count && isThere(i))
            ++i;
          if (i == count)
            return StridedColumns{const_cast<Value*>(value), first, step}; // NOLINT
        }
    }
    return std::nullopt;
  }

  bool hasShapeOfRows(const Value& value) const {
    const TensorType& type = value.type();
    const TensorType& own = rows.type();
    if (!type.hasRank() || type.rank() != 4 || type.elementType() != own.elementType())
      return false;
    return llvm::all_of(llvm::seq(0u, 4u),
                        [&](unsigned axis) { return type.dim(axis).isKnownEqual(own.dim(axis)); });
  }

  /// Whether the value, broadcast to the rows, has one entry for each token and no heads.
  bool isSameForHeads(const Value& value) const {
    const TensorType& type = value.type();
    const TensorType& own = rows.type();
    const unsigned tokens = areTokensFirst ? 1 : 2;
    const unsigned heads = areTokensFirst ? 2 : 1;
    if (!type.hasRank() || type.rank() != 4 || type.elementType() != own.elementType() ||
        !type.dim(heads).isKnownEqual(Dim::fixed(1)) ||
        !type.dim(tokens).isKnownEqual(own.dim(tokens)))
      return false;
    return type.dim(0).isKnownEqual(Dim::fixed(1)) || type.dim(0).isKnownEqual(own.dim(0));
  }

  Value& rows;
  bool areTokensFirst;
};

} // namespace

std::optional<PairedRotation> readPairedRotation(Value& heads) {
  if (!heads.type().hasRank() || heads.type().rank() != 4)
    return std::nullopt;
  Node* producer = heads.producer();
  if (producer && producer->is("Transpose")) {
    const auto order = producer->intsAttr("perm");
    if (!order || *order != llvm::ArrayRef<int64_t>{0, 2, 1, 3})
      return std::nullopt;
    return PairReader(*producer->operand(0), true).run();
  }
  return PairReader(heads, false).run();
}

} // namespace kvopt::analysis
