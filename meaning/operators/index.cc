// Operators that read elements as places, and those that write to such places.
#include "meaning/definitions.h"

#include "support/format.h"

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;

/// A place that counts from the end where it is negative.
Scalar counted(Scalar place, Scalar extent) {
  return select(
      place < 0, [&] { return place + extent; }, [&] { return place; });
}

/// Requires that all elements of a tensor of places are inside of an axis.
void requireInside(Call& call, const Tensor& places, Scalar extent, unsigned axis) {
  call.requireAt(
      listed(places.extents()),
      [=](Index index) {
        const Scalar place = places.at(index);
        return both(place >= -extent, place < extent);
      },
      formatted("an index is outside of axis {}", axis));
}

void defineGather(Call& call) {
  const Tensor data = call[0], places = call[1];
  const unsigned axis = call.axisAttribute("axis", 0, data.rank()), count = places.rank();
  if (call.isRefused())
    return;
  const Scalar extent = data.extent(axis);
  requireInside(call, places, extent, axis);
  const Scalars extents = joined(joined(data.extents().take_front(axis), places.extents()),
                                 data.extents().drop_front(axis + 1));
  call.result(Tensor(extents, data.type(), [=](Index index) {
    const Scalar place = counted(places.at(index.slice(axis, count)), extent);
    return data.at(
        joined(joined(index.take_front(axis), Scalars{place}), index.drop_front(axis + count)));
  }));
}
void defineGatherElements(Call& call) {
  const Tensor data = call[0], places = call[1];
  const unsigned axis = call.axisAttribute("axis", 0, data.rank());
  if (call.isRefused() || places.rank() != data.rank())
    return call.reject(
        formatted("ranks of data {} and indices {} differ", call.text(0), call.text(1)));
  const Scalar extent = data.extent(axis);
  requireInside(call, places, extent, axis);
  call.result(Tensor(listed(places.extents()), data.type(), [=](Index index) {
    return data.at(replaced(index, axis, counted(places.at(index), extent)));
  }));
}
void defineGatherNd(Call& call) {
  const Tensor data = call[0], places = call[1];
  call.type(0, data.type());
  const int64_t written = call.integerAttribute("batch_dims", 0);
  if (data.rank() == 0 || places.rank() == 0)
    return call.reject("data or indices are a scalar");
  if (written < 0 || written >= int64_t{places.rank()} || written >= int64_t{data.rank()})
    return call.reject(formatted("batch_dims {} is outside the ranks", written));
  const auto batch = static_cast<unsigned>(written);
  const unsigned outer = places.rank() - 1;
  const std::optional<int64_t> width = places.extent(outer).number();
  if (!width)
    return call.refuse("the width of a place is not known");
  if (*width < 1 || batch + *width > int64_t{data.rank()})
    return call.reject(formatted("{} indices into {}", *width, call.text(0)));
  const auto count = static_cast<unsigned>(*width);
  for (unsigned k = 0; k < count; ++k) {
    const Scalar extent = data.extent(batch + k);
    call.requireAt(
        listed(places.extents().take_front(outer)),
        [=](Index index) {
          const Scalar place = places.at(joined(index, Scalars{extent.integer(k)}));
          return both(place >= -extent, place < extent);
        },
        formatted("an index is outside of axis {}", batch + k));
  }
  call.result(Tensor(
      joined(places.extents().take_front(outer), data.extents().drop_front(batch + count)),
      data.type(), [=](Index index) {
        Scalars all = listed(index.take_front(batch));
        for (unsigned k = 0; k < count; ++k) {
          const Scalar extent = data.extent(batch + k);
          all.push_back(counted(
              places.at(joined(index.take_front(outer), Scalars{extent.integer(k)})), extent));
        }
        return data.at(joined(all, index.drop_front(outer)));
      }));
}

bool isReduction(Call& call, const std::string& reduction) {
  for (const char* known : {"none", "add", "mul", "min", "max"})
    if (reduction == known)
      return true;
  call.refuse("the reduction is not one of ONNX's");
  return false;
}

/// What is left of an element and the updates of it: the last one, or a sum, product or extreme.
Scalar updated(const std::string& reduction, Scalar old, Scalar extent,
               llvm::function_ref<Scalar(Scalar)> isHere,
               llvm::function_ref<Scalar(Scalar)> update) {
  if (reduction == "none")
    return last(extent, isHere, update, old);
  const bool isSum = reduction == "add", isLeast = reduction == "min";
  const Reduction kind = isSum                ? Reduction::Sum
                         : reduction == "mul" ? Reduction::Product
                         : isLeast            ? Reduction::Minimum
                                              : Reduction::Maximum;
  // The old element counts, and once more where there is no update.
  const Scalar neutral = isSum ? old.like(0) : reduction == "mul" ? old.like(1) : old;
  if (old.isBoolean()) {
    const Scalar any =
        reduce(isSum || kind == Reduction::Maximum ? Reduction::Any : Reduction::All, extent,
               [&](Scalar k) {
                 const bool isAny = isSum || kind == Reduction::Maximum;
                 return isAny ? both(isHere(k), update(k)) : either(!isHere(k), update(k));
               });
    return isSum || kind == Reduction::Maximum ? either(old, any) : both(old, any);
  }
  const Scalar all = reduce(kind, extent, [&](Scalar k) {
    return select(
        isHere(k), [&] { return update(k); }, [&] { return neutral; });
  });
  if (isSum)
    return old + all;
  if (reduction == "mul")
    return old * all;
  // Without updates the extreme of nothing is not read.
  return select(
      extent > 0, [&] { return isLeast ? minimum(old, all) : maximum(old, all); },
      [&] { return old; });
}

void defineScatterElements(Call& call) {
  const Tensor data = call[0], places = call[1], updates = call[2];
  call.extents(0, data.type(), data.extents());
  const unsigned axis = call.axisAttribute("axis", 0, data.rank());
  if (call.isRefused() || !call.hasRank(1, data.rank()) || !call.hasRank(2, data.rank()))
    return;
  const std::string reduction = call.textAttribute("reduction", "none").str();
  if (!isReduction(call, reduction))
    return;
  const Scalar extent = data.extent(axis);
  requireInside(call, places, extent, axis);
  for (unsigned each = 0; each < data.rank(); ++each)
    call.equalExtents(places.extent(each), updates.extent(each), "indices and updates differ");
  call.result(Tensor(listed(data.extents()), data.type(), [=, type = data.type()](Index index) {
    // Elsewhere an update is at its own place.
    Scalar isRow = extent.boolean(true);
    for (unsigned each = 0; each < data.rank(); ++each)
      if (each != axis)
        isRow = both(isRow, index[each] < places.extent(each));
    const Scalar result = updated(
        reduction, data.at(index), places.extent(axis),
        [&](Scalar k) {
          return select(
              isRow,
              [&] {
                return same(counted(places.at(replaced(index, axis, k)), extent), index[axis]);
              },
              [&] { return extent.boolean(false); });
        },
        [&](Scalar k) { return updates.at(replaced(index, axis, k)); });
    return wrapped(result, type);
  }));
}
void defineScatterNd(Call& call) {
  const Tensor data = call[0], places = call[1], updates = call[2];
  call.extents(0, data.type(), data.extents());
  if (places.rank() == 0)
    return call.reject("the indices are a scalar");
  const unsigned outer = places.rank() - 1;
  const std::optional<int64_t> width = places.extent(outer).number();
  if (!width)
    return call.refuse("the width of a place is not known");
  if (*width < 1 || *width > int64_t{data.rank()})
    return call.reject(formatted("{} indices into {}", *width, call.text(0)));
  const auto count = static_cast<unsigned>(*width);
  const std::string reduction = call.textAttribute("reduction", "none").str();
  if (!isReduction(call, reduction))
    return;
  const Scalars lists = listed(places.extents().take_front(outer));
  for (unsigned k = 0; k < count; ++k) {
    const Scalar extent = data.extent(k);
    call.requireAt(
        lists,
        [=](Index index) {
          const Scalar place = places.at(joined(index, Scalars{extent.integer(k)}));
          return both(place >= -extent, place < extent);
        },
        formatted("an index is outside of axis {}", k));
  }
  const Scalar total = product(call.formulas(), lists);
  call.result(Tensor(listed(data.extents()), data.type(), [=, type = data.type()](Index index) {
    const Scalar result = updated(
        reduction, data.at(index), total,
        [&](Scalar u) {
          const Scalars row = lists.size() == 1 ? Scalars{u} : unflat(u, lists);
          Scalar isHere = u.boolean(true);
          for (unsigned k = 0; k < count; ++k)
            isHere = both(
                isHere, same(counted(places.at(joined(row, Scalars{u.integer(k)})), data.extent(k)),
                             index[k]));
          return isHere;
        },
        [&](Scalar u) {
          const Scalars row = lists.size() == 1 ? Scalars{u} : unflat(u, lists);
          return updates.at(joined(row, index.drop_front(count)));
        });
    return wrapped(result, type);
  }));
}
/// Rows of a cache from a place in each batch on; around the end where the mode is circular.
void defineTensorScatter(Call& call) {
  const Tensor past = call[0], update = call[1];
  const unsigned axis = call.axisAttribute("axis", -2, past.rank());
  if (call.isRefused() || !call.hasRank(1, past.rank()))
    return;
  for (unsigned each = 0; each < past.rank(); ++each)
    if (each != axis)
      call.equalExtents(past.extent(each), update.extent(each),
                        "extents of past_cache and update differ");
  const bool isRing = call.textAttribute("mode", "linear") == "circular";
  const Tensor starts = call.has(2) ? call[2] : Tensor();
  if (starts)
    call.requireAt(
        listed(starts.extents()),
        [=](Index index) {
          const Scalar start = starts.at(index);
          return isRing ? start >= 0
                        : both(start >= 0, start + update.extent(axis) <= past.extent(axis));
        },
        "rows are written beyond the cache");
  call.result(Tensor(listed(past.extents()), past.type(), [=](Index index) {
    const Scalar start = starts ? starts.at({index[0]}) : index[0].integer(0);
    const Scalar offset = index[axis] - start;
    const Scalar row = isRing ? remainder(offset, past.extent(axis)) : offset;
    return select(
        both(row >= 0, row < update.extent(axis)),
        [&] { return update.at(replaced(index, axis, row)); }, [&] { return past.at(index); });
  }));
}

void defineOneHot(Call& call) {
  const Tensor places = call[0], values = call[2];
  const Scalar depth = toInteger(call.single(1));
  const unsigned axis = call.axisAttribute("axis", -1, places.rank() + 1);
  if (call.isRefused())
    return;
  call.result(Tensor(inserted(places.extents(), axis, depth), values.type(), [=](Index index) {
    // A place that is outside of the depth has no one.
    const Scalar place = counted(toInteger(places.at(without(index, axis))), depth);
    return select(same(index[axis], place), values.at({depth.integer(1)}),
                  values.at({depth.integer(0)}));
  }));
}
void defineArrayFeatureExtractor(Call& call) {
  const Tensor data = call[0], places = call[1];
  const Scalar count = places.count(call.formulas());
  const Tensor list = reshaped(call.formulas(), places, {count});
  requireInside(call, places, data.extent(data.rank() - 1), data.rank() - 1);
  Scalars extents =
      data.rank() > 1 ? without(data.extents(), data.rank() - 1) : Scalars{call.integer(1)};
  extents.push_back(count);
  call.result(Tensor(extents, data.type(), [=](Index index) {
    const Scalar place = list.at({index.back()});
    return data.rank() > 1 ? data.at(replaced(index, index.size() - 1, place)) : data.at({place});
  }));
}

// Extents that depend on data.

/// The places, in order, of the elements of a list for which a condition holds.
Tensor placesWhere(Call& call, Scalar extent, std::function<Scalar(Scalar)> condition) {
  const Tensor before = call.named(Tensor({extent}, Type::Int64, [=](Index index) {
    return sum(index[0],
               [&](Scalar k) { return select(condition(k), k.integer(1), k.integer(0)); });
  }));
  const Scalar count =
      sum(extent, [&](Scalar k) { return select(condition(k), k.integer(1), k.integer(0)); });
  return Tensor({count}, Type::Int64, [=](Index index) {
    return last(
        extent, [&](Scalar k) { return both(condition(k), same(before.at({k}), index[0])); },
        [](Scalar k) { return k; }, index[0].integer(0));
  });
}

void defineNonZero(Call& call) {
  call.nameExtents();
  const Tensor data = call[0];
  const Scalar count = data.count(call.formulas());
  const Scalars extents = listed(data.extents());
  const Tensor places = call.named(placesWhere(
      call, count, [=](Scalar place) { return toBoolean(data.at(unflat(place, extents))); }));
  const auto rank = static_cast<int64_t>(data.rank());
  call.result(Tensor({call.integer(rank), places.extent(0)}, Type::Int64, [=](Index index) {
    const Scalars all = unflat(places.at({index[1]}), extents);
    Scalar place = index[0].integer(0);
    for (size_t axis = all.size(); axis-- > 0;)
      place = select(same(index[0], static_cast<double>(axis)), all[axis], place);
    return place;
  }));
}
void defineCompress(Call& call) {
  call.nameExtents();
  const Tensor condition = call[1];
  if (!call.hasRank(1, 1))
    return;
  const bool isFlat = !call.hasAttribute("axis");
  const Tensor data =
      isFlat ? reshaped(call.formulas(), call[0], {call[0].count(call.formulas())}) : call[0];
  const unsigned axis = isFlat ? 0 : call.axisAttribute("axis", 0, data.rank());
  if (call.isRefused())
    return;
  const Scalar extent = data.extent(axis);
  call.requireAt(
      listed(condition.extents()),
      [=](Index index) { return either(index[0] < extent, !condition.at(index)); },
      "an element beyond the axis is wanted");
  const Tensor places = call.named(
      placesWhere(call, condition.extent(0), [=](Scalar place) { return condition.at({place}); }));
  call.result(
      Tensor(replaced(data.extents(), axis, places.extent(0)), data.type(), [=](Index index) {
        return data.at(replaced(index, axis, places.at({index[axis]})));
      }));
}

/// The place of each element in the order, from the number of those before it; of equal ones the
/// first comes first.
void defineTopK(Call& call) {
  const Tensor data = call[0];
  const unsigned axis = call.axisAttribute("axis", -1, data.rank());
  if (call.isRefused())
    return;
  const Scalar extent = data.extent(axis);
  const Scalar count = call.has(1) ? call.single(1) : call.integer(call.integerAttribute("k", 1));
  call.ignoreAttributes({"sorted"}); // any order is allowed without it
  const bool isLargest = call.integerAttribute("largest", 1) != 0;
  call.require(both(count >= 0, count <= extent), "more elements are wanted than there are");
  const Tensor order = call.named(Tensor(listed(data.extents()), Type::Int64, [=](Index index) {
    const Scalar own = data.at(index);
    return sum(extent, [&](Scalar k) {
      const Scalar other = data.at(replaced(index, axis, k));
      const Scalar isBefore =
          either(isLargest ? other > own : other < own, both(same(other, own), k < index[axis]));
      return select(isBefore, k.integer(1), k.integer(0));
    });
  }));
  const Tensor places =
      call.named(Tensor(replaced(data.extents(), axis, count), Type::Int64, [=](Index index) {
        return last(
            extent, [&](Scalar k) { return same(order.at(replaced(index, axis, k)), index[axis]); },
            [](Scalar k) { return k; }, index[axis].integer(0));
      }));
  call.result(0, Tensor(listed(places.extents()), data.type(), [=](Index index) {
                return data.at(replaced(index, axis, places.at(index)));
              }));
  call.result(1, places);
}

} // namespace

void register_index(Definitions& all) {
  all.add("Gather", defineGather);
  all.add("GatherElements", defineGatherElements, 11);
  all.add("GatherND", defineGatherNd, 11);
  all.add("ScatterElements", defineScatterElements, 11);
  all.add("Scatter", defineScatterElements, 9);
  all.add("ScatterND", defineScatterNd, 11);
  all.add("TensorScatter", defineTensorScatter, 24);
  all.add("OneHot", defineOneHot, 9);
  all.add("ai.onnx.ml::ArrayFeatureExtractor", defineArrayFeatureExtractor);
  all.add("NonZero", defineNonZero, 9);
  all.add("Compress", defineCompress, 9);
  all.add("TopK", defineTopK);
}

} // namespace kvopt::meaning
