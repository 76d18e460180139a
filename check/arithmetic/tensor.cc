// Shapes, and movement of elements.
#include "check/arithmetic/tensor.h"

#include <algorithm>

namespace kvopt::check {

int64_t Tensor::count() const { return std::max<int64_t>(elementCount(shape), 0); }

int64_t elementCount(llvm::ArrayRef<int64_t> shape) {
  int64_t count = 1;
  bool isEmpty = false;
  for (int64_t extent : shape) {
    if (extent < 0)
      return -1;
    isEmpty |= extent == 0;
    if (extent > 0 && count > mostElements / extent)
      count = mostElements + 1;
    else if (extent > 0)
      count *= extent;
  }
  if (isEmpty)
    return 0;
  return count > mostElements ? -1 : count;
}

Ref integerTensor(Extents shape, std::vector<int64_t> elements, ir::ElementType type) {
  auto result = std::make_shared<Tensor>();
  result->kind = Kind::Integer;
  result->type = type;
  result->shape = std::move(shape);
  result->integers = std::move(elements);
  return result;
}

Ref integerScalar(int64_t value) { return integerTensor({}, {value}); }

Ref hollowTensor(Extents shape, bool isSpecial, ir::ElementType type,
                 llvm::ArrayRef<GrowthId> extentGrowths) {
  auto result = std::make_shared<Tensor>();
  result->type = type;
  result->shape = std::move(shape);
  result->extentGrowths.assign(extentGrowths.begin(), extentGrowths.end());
  result->isHollow = true;
  result->isSpecial = isSpecial;
  return result;
}

Extents stridesOf(llvm::ArrayRef<int64_t> shape) {
  Extents strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

void forEachPlace(llvm::ArrayRef<int64_t> shape,
                  llvm::function_ref<void(llvm::ArrayRef<int64_t> place)> visit) {
  int64_t count = elementCount(shape);
  Extents place(shape.size(), 0);
  for (; count > 0; --count) {
    visit(place);
    for (size_t i = shape.size(); i-- > 0;) {
      if (++place[i] < shape[i])
        break;
      place[i] = 0;
    }
  }
}

namespace {

std::shared_ptr<Tensor> likeTensor(const Tensor& from, Extents shape) {
  auto result = std::make_shared<Tensor>();
  result->kind = from.kind;
  result->type = from.type;
  result->shape = std::move(shape);
  result->isHollow = from.isHollow;
  result->isSpecial = from.isSpecial;
  result->isToken = from.isToken;
  result->isConstant = from.isConstant;
  result->isWeight = from.isWeight;
  return result;
}

} // namespace

namespace {

/// Calls `move` with the elements of one tensor and those of another one of the same kind.
template <typename Move> void moveElements(const Tensor& from, Tensor& to, Move move) {
  if (from.isHollow)
    return;
  if (!from.growths.empty())
    move(from.growths, to.growths);
  switch (from.kind) {
  case Kind::Integer:
    move(from.integers, to.integers);
    break;
  case Kind::Known:
    move(from.known, to.known);
    break;
  case Kind::Real:
    move(from.reals, to.reals);
    break;
  }
}

} // namespace

Ref strided(const Ref& from, Extents shape, llvm::ArrayRef<int64_t> strides, int64_t first) {
  auto result = likeTensor(*from, std::move(shape));
  const llvm::ArrayRef<int64_t> extents = result->shape;
  const int64_t count = result->count();
  if (count == 0)
    return result;
  const int64_t columns = extents.empty() ? 1 : extents.back();
  const int64_t step = extents.empty() ? 1 : strides.back();
  moveElements(*from, *result, [&](const auto& source, auto& target) {
    target.reserve(static_cast<size_t>(count));
    Extents place(extents.size(), 0);
    int64_t at = first;
    for (int64_t row = 0; row < count / columns; ++row) {
      for (int64_t column = 0; column < columns; ++column)
        target.push_back(source[static_cast<size_t>(at + column * step)]);
      for (size_t i = extents.empty() ? 0 : extents.size() - 1; i-- > 0;) {
        at += strides[i];
        if (++place[i] < extents[i])
          break;
        at -= strides[i] * extents[i];
        place[i] = 0;
      }
    }
  });
  return result;
}

Ref rearranged(const Ref& from, Extents shape,
               llvm::function_ref<int64_t(llvm::ArrayRef<int64_t> place)> indexOf) {
  auto result = likeTensor(*from, std::move(shape));
  if (from->isHollow)
    return result;
  std::vector<size_t> indices; // the function may count its calls
  indices.reserve(static_cast<size_t>(result->count()));
  forEachPlace(result->shape, [&](llvm::ArrayRef<int64_t> place) {
    indices.push_back(static_cast<size_t>(indexOf(place)));
  });
  moveElements(*from, *result, [&](const auto& source, auto& target) {
    target.reserve(indices.size());
    for (size_t index : indices)
      target.push_back(source[index]);
  });
  return result;
}

Ref reshaped(const Ref& from, Extents shape) {
  auto result = std::make_shared<Tensor>(*from);
  result->shape = std::move(shape);
  return result;
}

Ref transposed(const Ref& from, llvm::ArrayRef<int64_t> permutation) {
  const Extents strides = stridesOf(from->shape);
  Extents shape;
  Extents moved;
  for (int64_t axis : permutation) {
    shape.push_back(from->shape[static_cast<size_t>(axis)]);
    moved.push_back(strides[static_cast<size_t>(axis)]);
  }
  return strided(from, std::move(shape), moved, 0);
}

Ref rowsOf(const Ref& from, unsigned axis, int64_t first, int64_t last) {
  Extents shape = from->shape;
  shape[axis] = last - first;
  const Extents strides = stridesOf(from->shape);
  return strided(from, std::move(shape), strides, first * strides[axis]);
}

std::optional<Extents> broadcastShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  Extents shape(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t inA = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t inB = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (inA != inB && inA != 1 && inB != 1)
      return std::nullopt;
    shape[shape.size() - 1 - i] = inA == 1 ? inB : inA;
  }
  return shape;
}

Ref broadcastTo(const Ref& from, const Extents& shape) {
  if (llvm::ArrayRef<int64_t>(from->shape) == llvm::ArrayRef<int64_t>(shape))
    return from;
  Extents strides = stridesOf(from->shape);
  for (size_t i = 0; i < strides.size(); ++i)
    if (from->shape[i] == 1)
      strides[i] = 0;
  strides.insert(strides.begin(), shape.size() - strides.size(), 0);
  return strided(from, shape, strides, 0);
}

} // namespace kvopt::check
