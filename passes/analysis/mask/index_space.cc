// Proofs over index variables with ranges.
#include "passes/analysis/mask/index_space.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr const char* reservedNames[] = {"\x01"
                                         "b",
                                         "\x01"
                                         "h",
                                         "\x01"
                                         "i",
                                         "\x01"
                                         "j"};
constexpr const char* rowLengthName = "\x01"
                                      "p";
constexpr const char* plainNames[] = {"b", "h", "i", "j"};
constexpr char reservedMark = '\x01';
constexpr IndexVariable everyVariable[] = {IndexVariable::Key, IndexVariable::Row,
                                           IndexVariable::Batch, IndexVariable::Head};

llvm::StringRef nameOf(IndexVariable variable) {
  return reservedNames[static_cast<unsigned>(variable)];
}

Dim replaced(const Dim& dim, llvm::StringRef name, const Dim& by) {
  return dim.substitute([&](llvm::StringRef symbol) {
    return symbol == name ? std::optional<Dim>(by) : std::nullopt;
  });
}

} // namespace

IndexSpace::IndexSpace(Dim batch, Dim heads, Dim rows, Dim keys)
    : extents{fromModel(batch), fromModel(heads), fromModel(rows), fromModel(keys)} {}

const Dim& IndexSpace::variable(IndexVariable variable) {
  static const Dim symbols[] = {Dim::symbol(reservedNames[0]), Dim::symbol(reservedNames[1]),
                                Dim::symbol(reservedNames[2]), Dim::symbol(reservedNames[3])};
  return symbols[static_cast<unsigned>(variable)];
}

Dim IndexSpace::fromModel(const Dim& dim) {
  if (dim.isUnknown() || dim.value())
    return dim;
  bool isReserved = llvm::any_of(
      dim.symbols(), [](const std::string& name) { return name.front() == reservedMark; });
  return isReserved ? Dim::unknown() : dim;
}

IndexSet IndexSpace::variablesOf(const Dim& dim) {
  IndexSet set = noIndices;
  for (const std::string& name : dim.symbols())
    for (IndexVariable variable : everyVariable)
      if (name == nameOf(variable))
        set |= indexBit(variable);
  return set;
}

std::string IndexSpace::print(const Dim& dim) {
  return dim
      .substitute([](llvm::StringRef symbol) -> std::optional<Dim> {
        for (unsigned i = 0; i < 4; ++i)
          if (symbol == reservedNames[i])
            return Dim::symbol(plainNames[i]);
        return symbol == rowLengthName ? std::optional<Dim>(Dim::symbol("P")) : std::nullopt;
      })
      .str();
}

const Dim& IndexSpace::rowLength() {
  static const Dim symbol = Dim::symbol(rowLengthName);
  return symbol;
}

Dim IndexSpace::past() const {
  return hasRowLengths ? rowLength() : extent(IndexVariable::Key) - extent(IndexVariable::Row);
}

void IndexSpace::learnNonNegative(const Dim& dim) {
  constexpr size_t mostLearned = 8;
  if (learned.size() < mostLearned && variablesOf(dim) == noIndices && !isNonNegative(dim))
    learned.push_back(dim);
}

/// A linear form is extreme where each variable is at one end of its range.
std::optional<Dim> IndexSpace::atEnds(const Dim& dim, bool upper) const {
  Dim end = dim;
  for (IndexVariable variable : everyVariable) {
    if (!(variablesOf(end) & indexBit(variable)))
      continue;
    std::optional<Dim> factor = linearFactor(end, variable);
    if (!factor)
      return std::nullopt;
    bool isRising = factor->isKnownNonNegative();
    if (!isRising && !(-*factor).isKnownNonNegative())
      return std::nullopt;
    end = replaced(end, nameOf(variable),
                   isRising == upper ? extent(variable) - Dim::fixed(1) : Dim::fixed(0));
    if (end.isUnknown())
      return std::nullopt;
  }
  return end;
}

std::optional<Dim> IndexSpace::largest(const Dim& dim) const { return atEnds(dim, true); }

/// Requires a dim without index variables; extents are at least 1.
bool IndexSpace::isNonNegativeAtOne(const Dim& dim) const {
  if (dim.isKnownNonNegative())
    return true;
  Dim least = dim;
  llvm::SmallVector<std::string, 4> atLeastOne;
  for (const Dim& extent : extents)
    if (std::optional<std::string> name = symbolOf(extent))
      if (!llvm::is_contained(atLeastOne, *name)) {
        least = replaced(least, *name, extent + Dim::fixed(1));
        atLeastOne.push_back(*name);
      }
  return least.isKnownNonNegative();
}

bool IndexSpace::isNonNegative(const Dim& dim) const {
  if (dim.isUnknown())
    return false;
  if (dim.isKnownNonNegative())
    return true;
  std::optional<Dim> least = atEnds(dim, false);
  if (!least)
    return false;
  return isNonNegativeAtOne(*least) || llvm::any_of(learned, [&](const Dim& bound) {
           return isNonNegativeAtOne(*least - bound);
         });
}

std::optional<IndexSpace::Division> IndexSpace::divide(const Dim& dim, const Dim& divisor) const {
  if (dim.isUnknown() || divisor.isUnknown() || variablesOf(divisor) != noIndices)
    return std::nullopt;
  Division division{Dim::fixed(0), Dim::fixed(0)};
  auto place = [&](const Dim& factor, const Dim& of) {
    if (std::optional<Dim> quotient = factor.dividedBy(divisor))
      division.quotient = division.quotient + *quotient * of;
    else
      division.remainder = division.remainder + factor * of;
  };
  Dim rest = dim;
  for (IndexVariable index : everyVariable) {
    std::optional<Dim> factor = linearFactor(rest, index);
    if (!factor || variablesOf(*factor) != noIndices)
      return std::nullopt;
    if (factor->value() == 0)
      continue;
    place(*factor, variable(index));
    rest = replaced(rest, nameOf(index), Dim::fixed(0));
  }
  place(rest, Dim::fixed(1));
  if (!(division.quotient * divisor + division.remainder).isKnownEqual(dim) ||
      !isNonNegative(division.remainder) ||
      !isNonNegative(divisor - division.remainder - Dim::fixed(1)))
    return std::nullopt;
  return division;
}

IndexSpace IndexSpace::where(llvm::StringRef symbol, const Dim& value) const {
  IndexSpace space(replaced(extents[0], symbol, value), replaced(extents[1], symbol, value),
                   replaced(extents[2], symbol, value), replaced(extents[3], symbol, value));
  space.hasRowLengths = hasRowLengths;
  return space;
}

std::optional<std::string> symbolOf(const Dim& dim) {
  llvm::SmallVector<std::string> names = dim.symbols();
  if (names.size() != 1 || !dim.isKnownEqual(Dim::symbol(names.front())))
    return std::nullopt;
  return names.front();
}

bool operator==(const IndexSpace& a, const IndexSpace& b) {
  return a.hasRowLengths == b.hasRowLengths &&
         std::equal(std::begin(a.extents), std::end(a.extents), std::begin(b.extents));
}

std::optional<Dim> linearFactor(const Dim& dim, IndexVariable variable) {
  const Dim& symbol = IndexSpace::variable(variable);
  if (!(IndexSpace::variablesOf(dim) & indexBit(variable)))
    return dim.isUnknown() ? std::nullopt : std::optional<Dim>(Dim::fixed(0));
  Dim factor = replaced(dim, nameOf(variable), symbol + Dim::fixed(1)) - dim;
  if (factor.isUnknown() || (IndexSpace::variablesOf(factor) & indexBit(variable)))
    return std::nullopt;
  return factor;
}

} // namespace kvopt::analysis
