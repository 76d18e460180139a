// Steps of an AxisMap.
#include "passes/analysis/movement/axis_map.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

bool isOne(const Dim& extent) { return extent.value() == 1; }

/// Joins neighbors that are pieces of one axis into one part.
void join(llvm::SmallVectorImpl<AxisPart>& parts) {
  llvm::SmallVector<AxisPart, 8> joined;
  for (const AxisPart& part : parts) {
    bool continues = !joined.empty() && joined.back().role == part.role && part.role != '*' &&
                     joined.back().stride.isKnownEqual(part.extent * part.stride);
    if (!continues) {
      joined.push_back(part);
      continue;
    }
    joined.back().extent = joined.back().extent * part.extent;
    joined.back().stride = part.stride;
  }
  parts.assign(joined.begin(), joined.end());
}

/// Takes parts from the front of a row-major list of parts.
class PartQueue {
public:
  explicit PartQueue(llvm::ArrayRef<AxisMap::Parts> axes) {
    for (const AxisMap::Parts& parts : axes)
      for (const AxisPart& part : parts)
        if (!isOne(part.extent))
          pending.push_back(part);
    join(pending);
    std::reverse(pending.begin(), pending.end());
  }

  bool isEmpty() const { return pending.empty(); }

  std::optional<Dim> elements() const {
    Dim product = Dim::fixed(1);
    for (const AxisPart& part : pending)
      product = product * part.extent;
    return product.isUnknown() ? std::nullopt : std::optional<Dim>(product);
  }

  /// Parts of one axis of that extent; nullopt if no parts at the front fill it.
  std::optional<AxisMap::Parts> take(const Dim& extent) {
    AxisMap::Parts taken;
    Dim rest = extent;
    while (!isOne(rest)) {
      if (pending.empty())
        return std::nullopt;
      AxisPart part = pending.pop_back_val();
      if (std::optional<Dim> left = rest.dividedBy(part.extent)) {
        rest = *left;
        taken.push_back(std::move(part));
        continue;
      }
      std::optional<Dim> minor = part.extent.dividedBy(rest);
      if (!minor || part.role == 'S')
        return std::nullopt;
      pending.push_back({part.role, *minor, part.stride});
      taken.push_back({part.role, rest, part.stride * *minor});
      rest = Dim::fixed(1);
    }
    return taken;
  }

private:
  llvm::SmallVector<AxisPart, 8> pending; // stored in reverse: the front is at the end
};

} // namespace

std::optional<AxisMap> AxisMap::ofAttentionOperand(const TensorType& type) {
  if (!type.hasRank() || type.rank() != 4)
    return std::nullopt;
  AxisMap map;
  for (unsigned i = 0; i < 4; ++i)
    map.axes.push_back({{"BHSD"[i], type.shape()[i], Dim::fixed(1)}});
  return map;
}

std::optional<unsigned> AxisMap::sequenceAxis() const {
  for (unsigned i = 0; i < axes.size(); ++i)
    if (axes[i].size() == 1 && axes[i][0].role == 'S')
      return i;
  return std::nullopt;
}

const Dim& AxisMap::sequenceExtent() const { return axes[*sequenceAxis()][0].extent; }

void AxisMap::setSequenceExtent(const Dim& extent) { axes[*sequenceAxis()][0].extent = extent; }

AxisMap AxisMap::permuted(llvm::ArrayRef<unsigned> order) const {
  AxisMap result = *this;
  for (size_t i = 0; i < order.size(); ++i)
    result.axes[i] = axes[order[i]];
  return result;
}

AxisMap AxisMap::permutedBack(llvm::ArrayRef<unsigned> order) const {
  AxisMap result = *this;
  for (size_t i = 0; i < order.size(); ++i)
    result.axes[order[i]] = axes[i];
  return result;
}

bool AxisMap::reshape(llvm::ArrayRef<Dim> shape) {
  PartQueue parts(axes);
  llvm::SmallVector<Dim, 5> extents(shape.begin(), shape.end());
  // One unknown extent follows from the others.
  auto open = llvm::find_if(extents, [](const Dim& extent) { return extent.isUnknown(); });
  if (open != extents.end()) {
    std::optional<Dim> rest = parts.elements();
    for (auto extent = extents.begin(); rest && extent != extents.end(); ++extent)
      if (extent != open)
        rest = rest->dividedBy(*extent);
    if (!rest)
      return false;
    *open = *rest;
  }
  llvm::SmallVector<Parts, 5> result;
  for (const Dim& extent : extents) {
    std::optional<Parts> taken = parts.take(extent);
    if (!taken)
      return false;
    result.push_back(std::move(*taken));
  }
  axes = std::move(result);
  return parts.isEmpty();
}

void AxisMap::insertAxis(unsigned position) { axes.insert(axes.begin() + position, Parts()); }

bool AxisMap::removeAxis(unsigned position) {
  for (const AxisPart& part : axes[position])
    if (!isOne(part.extent) || part.role == 'S' || part.role == 'D')
      return false;
  axes.erase(axes.begin() + position);
  return true;
}

bool AxisMap::undoRepeat(unsigned axis) {
  for (const AxisPart& part : axes[axis]) {
    if (part.role != 'H' || !isOne(part.stride))
      return false;
    for (Parts& parts : axes)
      for (AxisPart& other : parts)
        if (&other != &part && other.role == 'H') {
          std::optional<Dim> stride = other.stride.dividedBy(part.extent);
          if (!stride)
            return false;
          other.stride = *stride;
        }
    headRepeats = headRepeats * part.extent;
  }
  axes[axis].clear();
  return true;
}

bool AxisMap::undoSlice(unsigned axis, int64_t start, const Dim& whole) {
  Parts& parts = axes[axis];
  if (parts.empty()) {
    selection = start;
    parts.push_back({'*', whole, Dim::fixed(1)});
    return true;
  }
  if (parts.size() != 1)
    return false;
  if (parts[0].role == 'D' && isOne(parts[0].stride) && start >= 0) {
    columnOffset += start;
    parts[0].extent = whole;
    return true;
  }
  if (parts[0].role != 'S')
    return false;
  windowed = true;
  parts[0].extent = whole;
  return true;
}

CacheLayout AxisMap::layout() const {
  llvm::SmallVector<std::string, 5> result;
  std::string seen;
  for (Parts parts : axes) {
    join(parts);
    result.emplace_back();
    for (const AxisPart& part : parts) {
      // An axis in two pieces would have to be gathered.
      if (seen.find(part.role) != std::string::npos || !isOne(part.stride))
        return {};
      seen += part.role;
      result.back() += part.role;
    }
  }
  for (char missing : {'B', 'H'})
    if (seen.find(missing) == std::string::npos) {
      auto free = llvm::find_if(result, [](const std::string& axis) { return axis.empty(); });
      if (free != result.end())
        *free = std::string(1, missing);
    }
  return CacheLayout(result);
}

} // namespace kvopt::analysis
