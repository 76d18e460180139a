// Lines up the factors of two shapes.
#include "passes/analysis/movement/aligned_reshape.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// A part of an extent, in row-major order.
struct Factor {
  Dim extent;
  Dim before; ///< former number
};

using Before = llvm::function_ref<Dim(const Dim&)>;
using StaysOne = llvm::function_ref<bool(unsigned axis)>;

/// Factors in row-major order. Products of symbols are split in the order of their names, which is
/// that of their axes.
llvm::SmallVector<Factor, 8> factorsOf(llvm::ArrayRef<Dim> from, Before before) {
  llvm::SmallVector<Factor, 8> factors;
  for (Dim extent : from) {
    for (const std::string& name : extent.symbols()) {
      const Dim symbol = Dim::symbol(name);
      const std::optional<Dim> rest = extent.dividedBy(symbol);
      if (!rest || rest->value() == 1)
        continue;
      factors.push_back({symbol, before(symbol)});
      extent = *rest;
    }
    factors.push_back({extent, before(extent)});
  }
  return factors;
}

class Alignment {
public:
  Alignment(llvm::SmallVector<Factor, 8> given, llvm::ArrayRef<Dim> wanted, StaysOne keepsOne)
      : factors(std::move(given)), to(wanted), staysOne(keepsOne) {}

  std::optional<Shape> run() {
    while (entry < to.size() || next < factors.size())
      if (!alignOnes() || (entry < to.size() && !alignOne()))
        return std::nullopt;
    return result;
  }

private:
  /// Aligns a run of extents of one on both sides.
  bool alignOnes() {
    llvm::SmallVector<Dim, 4> ones;
    for (; next < factors.size() && factors[next].before.value() == 1; ++next)
      ones.push_back(factors[next].extent);
    if (entry == to.size() && ones.empty())
      return next == factors.size();
    size_t places = 0;
    while (entry + places < to.size() && to[entry + places].value() == 1)
      ++places;
    const bool isOneToOne = ones.size() == places;
    if (!isOneToOne)
      llvm::erase_if(ones, [](const Dim& extent) { return extent.value() == 1; });
    const auto takesSymbol = [&](size_t place) {
      return isOneToOne || !staysOne(static_cast<unsigned>(place));
    };
    size_t takers = 0;
    for (size_t place = entry; place < entry + places; ++place)
      takers += takesSymbol(place) ? 1 : 0;
    // If there are more symbols than places, the first ones share one place, or the next extent.
    while (ones.size() > std::max<size_t>(takers, 1)) {
      ones[1] = ones[0] * ones[1];
      ones.erase(ones.begin());
    }
    if (takers == 0 && !ones.empty())
      pending = ones.front();
    size_t given = 0;
    for (size_t place = entry; place < entry + places; ++place)
      result.push_back(takers > 0 && takesSymbol(place) && given < ones.size() ? ones[given++]
                                                                               : Dim::fixed(1));
    entry += places;
    return entry < to.size() || takers > 0 || ones.empty() || mergeIntoLast();
  }

  /// Merges the symbols after the last extent into it.
  bool mergeIntoLast() {
    if (result.empty())
      return false;
    result.back() = result.back() * pending;
    pending = Dim::fixed(1);
    return true;
  }

  /// Aligns one extent of more than one.
  bool alignOne() {
    Dim extent = pending;
    pending = Dim::fixed(1);
    Dim left = to[entry];
    while (left.value() != 1) {
      if (next == factors.size())
        return false;
      Factor& factor = factors[next];
      if (const auto rest = left.dividedBy(factor.before)) {
        extent = extent * factor.extent;
        left = *rest;
        ++next;
        continue;
      }
      const auto rest = factor.extent.value() ? factor.before.dividedBy(left) : std::nullopt;
      if (!rest)
        return false;
      extent = extent * left;
      factor = {*rest, *rest};
      left = Dim::fixed(1);
    }
    result.push_back(extent);
    ++entry;
    return true;
  }

  llvm::SmallVector<Factor, 8> factors;
  llvm::ArrayRef<Dim> to;
  StaysOne staysOne;
  size_t next = 0;
  size_t entry = 0;
  Dim pending = Dim::fixed(1);
  Shape result;
};

} // namespace

std::optional<Shape> alignedReshape(llvm::ArrayRef<Dim> from, llvm::ArrayRef<Dim> to, Before before,
                                    StaysOne staysOne) {
  return Alignment(factorsOf(from, before), to, staysOne).run();
}

} // namespace kvopt::analysis
