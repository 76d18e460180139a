// Row-major order, broadcasting, and lists of indices.
#include "meaning/tensor.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::meaning {

Sort sortOf(ir::ElementType type) {
  if (type == ir::ElementType::Bool)
    return Sort::Boolean;
  return ir::isInteger(type) ? Sort::Integer : Sort::Real;
}

Scalar Tensor::unknown(Index index, Sort sort) const {
  Formulas& formulas = !index.empty()            ? index.front().formulas()
                       : parts_->extents.empty() ? parts_->element({}).formulas()
                                                 : parts_->extents.front().formulas();
  return {formulas, formulas.unknown(sort)};
}

Scalars replaced(Index list, size_t place, Scalar by) {
  Scalars all(list.begin(), list.end());
  if (place < all.size())
    all[place] = by;
  return all;
}

Scalars inserted(Index list, size_t place, Scalar item) {
  Scalars all(list.begin(), list.end());
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(std::min(place, all.size())), item);
  return all;
}

Scalars without(Index list, size_t place) {
  Scalars all(list.begin(), list.end());
  if (place < all.size())
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(place));
  return all;
}

Scalars joined(Index a, Index b) {
  Scalars all(a.begin(), a.end());
  all.append(b.begin(), b.end());
  return all;
}

Scalar flat(Formulas& formulas, Index index, Index extents) {
  Scalar place(formulas, formulas.integer(0));
  for (size_t axis = 0; axis < index.size(); ++axis)
    place = place * extents[axis] + index[axis];
  return place;
}

Scalars unflat(Scalar place, Index extents) {
  Scalars all(extents.size());
  Scalar step = place.integer(1);
  for (size_t axis = extents.size(); axis-- > 0;) {
    if (extents[axis].is(1)) {
      all[axis] = place.integer(0);
      continue;
    }
    const Scalar rest = quotient(place, step);
    const bool isFirst =
        llvm::all_of(extents.take_front(axis), [](Scalar extent) { return extent.is(1); });
    all[axis] = isFirst ? rest : remainder(rest, extents[axis]);
    step = step * extents[axis];
  }
  return all;
}

Scalars broadcastIndex(const Tensor& operand, Index index) {
  Scalars all(index.take_back(operand.rank()).begin(), index.end());
  for (unsigned axis = 0; axis < operand.rank(); ++axis)
    if (operand.extent(axis).is(1))
      all[axis] = operand.extent(axis).integer(0);
  return all;
}

Tensor reshaped(Formulas& formulas, const Tensor& tensor, Scalars extents) {
  const Scalars old(tensor.extents().begin(), tensor.extents().end());
  // Axes that are the same at either end keep their index.
  size_t front = 0, back = 0;
  const size_t most = std::min(old.size(), extents.size());
  while (front < most && old[front].expr() == extents[front].expr())
    ++front;
  while (back < most - front &&
         old[old.size() - 1 - back].expr() == extents[extents.size() - 1 - back].expr())
    ++back;
  return Tensor(extents, tensor.type(), [=, &formulas](Index index) {
    const Index middle = index.drop_front(front).drop_back(back);
    const Scalar place = flat(formulas, middle, Index(extents).drop_front(front).drop_back(back));
    const Scalars inner = unflat(place, Index(old).drop_front(front).drop_back(back));
    return tensor.at(joined(joined(index.take_front(front), inner), index.take_back(back)));
  });
}

Tensor transposed(const Tensor& tensor, llvm::ArrayRef<int64_t> order) {
  const llvm::SmallVector<int64_t> axes(order.begin(), order.end());
  Scalars extents;
  for (int64_t axis : axes)
    extents.push_back(tensor.extent(static_cast<unsigned>(axis)));
  return Tensor(extents, tensor.type(), [=](Index index) {
    Scalars inner(axes.size());
    for (size_t k = 0; k < axes.size(); ++k)
      inner[static_cast<size_t>(axes[k])] = index[k];
    return tensor.at(inner);
  });
}

Tensor unknownTensor(Formulas& formulas, Scalars extents, ir::ElementType type) {
  return Tensor(std::move(extents), type, [&formulas, sort = sortOf(type)](Index) {
    return Scalar(formulas, formulas.unknown(sort));
  });
}

Tensor listOf(Formulas& formulas, Scalars numbers, ir::ElementType type) {
  const Scalar size(formulas, formulas.integer(static_cast<int64_t>(numbers.size())));
  return Tensor({size}, type, [=](Index index) {
    const Scalar place = index[0];
    if (numbers.empty())
      return place.integer(0);
    if (std::optional<int64_t> known = place.number();
        known && *known >= 0 && *known < static_cast<int64_t>(numbers.size()))
      return numbers[static_cast<size_t>(*known)];
    Scalar all = numbers.back();
    for (size_t k = numbers.size() - 1; k-- > 0;)
      all = select(same(place, static_cast<double>(k)), numbers[k], all);
    return all;
  });
}

} // namespace kvopt::meaning
