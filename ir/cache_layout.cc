// Layouts of caches, stored as text.
#include "ir/cache_layout.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>
#include <numeric>

namespace kvopt::ir {

CacheLayout::CacheLayout(llvm::ArrayRef<std::string> axes) {
  for (const std::string& axis : axes)
    letters += axis.size() > 1 ? "(" + axis + ")" : axis.empty() ? "1" : axis;
}

CacheLayout CacheLayout::ofText(llvm::StringRef text) {
  CacheLayout layout;
  layout.letters = text.str();
  return layout;
}

CacheLayout CacheLayout::ofAttention() { return ofText("BHSD"); }

std::optional<CacheLayout> CacheLayout::bySequenceAxis(size_t rank, int64_t sequenceAxis) {
  constexpr const char* ofFour[] = {"SBHD", "BSHD", "BHSD", "BHDS"};
  if (rank == 4 && sequenceAxis >= 0 && sequenceAxis < 4)
    return ofText(ofFour[sequenceAxis]);
  if (rank == 3 && (sequenceAxis == 1 || sequenceAxis == 2))
    return ofText(sequenceAxis == 1 ? "(BH)SD" : "(BH)DS");
  return std::nullopt;
}

std::optional<CacheLayout> CacheLayout::parse(llvm::StringRef text) {
  std::string once;
  bool isInside = false;
  unsigned lettersInside = 0;
  for (char letter : text) {
    if (letter == '(' && !isInside) {
      isInside = true;
      lettersInside = 0;
    } else if (letter == ')' && isInside && lettersInside > 1) {
      isInside = false;
    } else if (llvm::StringRef("BHSD*1?").contains(letter) && (letter != '1' || !isInside)) {
      if (llvm::StringRef("BHSD").contains(letter) && once.find(letter) != std::string::npos)
        return std::nullopt;
      once += letter;
      ++lettersInside;
    } else {
      return std::nullopt;
    }
  }
  if (isInside)
    return std::nullopt;
  return ofText(text);
}

llvm::SmallVector<llvm::StringRef, 5> CacheLayout::axes() const {
  llvm::SmallVector<llvm::StringRef, 5> result;
  for (llvm::StringRef rest = letters; !rest.empty();) {
    const bool isFolded = rest.consume_front("(");
    result.push_back(isFolded ? rest.take_until([](char c) { return c == ')'; })
                              : rest.take_front());
    rest = rest.drop_front(result.back().size() + (isFolded ? 1 : 0));
  }
  return result;
}

std::optional<unsigned> CacheLayout::axisOf(char letter) const {
  unsigned axis = 0;
  bool inside = false;
  for (char each : letters) {
    if (each == letter)
      return axis;
    inside = each == '(' || (inside && each != ')');
    axis += inside ? 0 : 1;
  }
  return std::nullopt;
}

unsigned CacheLayout::existing(char letter) const {
  const std::optional<unsigned> axis = axisOf(letter);
  assert(axis && "the layout has no such axis");
  return *axis;
}

llvm::SmallVector<int64_t, 4> CacheLayout::rowOrder() const {
  const llvm::SmallVector<llvm::StringRef, 5> parts = axes();
  llvm::SmallVector<int64_t, 4> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  llvm::stable_sort(order, [&](int64_t a, int64_t b) {
    const auto place = [&](int64_t axis) {
      const size_t found = llvm::StringRef("BHSD").find(parts[static_cast<size_t>(axis)].front());
      return found == llvm::StringRef::npos ? size_t{0} : found + 1;
    };
    return place(a) < place(b);
  });
  return order;
}

llvm::SmallVector<int64_t, 4> CacheLayout::cacheOrder() const {
  const llvm::SmallVector<int64_t, 4> order = rowOrder();
  llvm::SmallVector<int64_t, 4> back(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
}

std::optional<llvm::SmallVector<int64_t, 4>>
CacheLayout::orderFrom(const CacheLayout& other) const {
  const llvm::SmallVector<llvm::StringRef, 5> theirs = other.axes();
  llvm::SmallVector<int64_t, 4> order;
  for (llvm::StringRef axis : axes()) {
    const auto* found = llvm::find(theirs, axis);
    if (found == theirs.end())
      return std::nullopt;
    order.push_back(found - theirs.begin());
  }
  if (order.size() != theirs.size())
    return std::nullopt;
  return order;
}

} // namespace kvopt::ir
