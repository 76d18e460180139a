// Rules of operators that read or write elements at indices.
#include "check/arithmetic/call.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

namespace kvopt::check {
namespace {

/// Indices of an axis, where negative ones count from the end; nullopt if one is out of range.
std::optional<std::vector<int64_t>> indicesOf(const Ref& tensor, int64_t extent) {
  if (!tensor || !tensor->isInteger())
    return std::nullopt;
  std::vector<int64_t> indices = tensor->integers;
  for (int64_t& index : indices) {
    index += index < 0 ? extent : 0;
    if (index < 0 || index >= extent)
      return std::nullopt;
  }
  return indices;
}

/// Whether each extent other than that of `axis` is at most the data's. Both have the same rank.
bool fitsBesides(const Extents& shape, const Extents& data, unsigned axis) {
  for (size_t i = 0; i < shape.size(); ++i)
    if (i != axis && shape[i] > data[i])
      return false;
  return true;
}

/// Rows that tokens select are numbers without a relation to each other; rows that positions select
/// are entries of a table.
Ref gatherable(Call& call, const Ref& data, const Ref& indices) {
  if (data->kind != Kind::Known)
    return data;
  auto copy = std::make_shared<Tensor>(*data);
  copy->isWeight = indices->isToken;
  return indices->isToken ? call.real(copy) : Ref(copy);
}

Results gather(Call& call) {
  const Ref data = call.in(0);
  const Ref places = call.in(1);
  auto axis = axisOf(call.integer("axis", 0), data->rank());
  if (!axis)
    return call.fail("its axis is out of range");
  if (!places || !places->isInteger())
    return call.unsupported("its indices are unknown");
  auto indices = indicesOf(places, data->shape[*axis]);
  if (!indices)
    return call.fail("an index is out of range");
  call.noteRead(0, *axis, *indices, places);
  Extents shape(data->shape.begin(), data->shape.begin() + *axis);
  shape.append(places->shape.begin(), places->shape.end());
  shape.append(data->shape.begin() + *axis + 1, data->shape.end());
  const Extents strides = stridesOf(data->shape);
  const Extents placeStrides = stridesOf(places->shape);
  // Only selected rows are converted.
  Ref source = data;
  const bool convertsToken = data->kind == Kind::Known && places->isToken;
  if (data->kind == Kind::Known && !convertsToken)
    source = gatherable(call, data, places);
  Ref moved = rearranged(source, std::move(shape), [&](llvm::ArrayRef<int64_t> place) {
    int64_t at = 0;
    int64_t which = 0;
    for (size_t i = 0; i < *axis; ++i)
      at += place[i] * strides[i];
    for (size_t i = 0; i < placeStrides.size(); ++i)
      which += place[*axis + i] * placeStrides[i];
    for (size_t i = *axis + 1; i < strides.size(); ++i)
      at += place[i + placeStrides.size() - 1] * strides[i];
    return at + (*indices)[static_cast<size_t>(which)] * strides[*axis];
  });
  return {convertsToken ? gatherable(call, moved, places) : moved};
}

Results gatherElements(Call& call) {
  const Ref data = call.in(0);
  const Ref places = call.in(1);
  auto axis = axisOf(call.integer("axis", 0), data->rank());
  if (!axis || !places || places->rank() != data->rank())
    return call.fail("its axis is out of range");
  if (!places || !places->isInteger())
    return call.unsupported("its indices are unknown");
  auto indices = indicesOf(places, data->shape[*axis]);
  if (!indices)
    return call.fail("an index is out of range");
  if (!fitsBesides(places->shape, data->shape, *axis))
    return call.fail("its indices extend beyond the data");
  const Extents strides = stridesOf(data->shape);
  std::vector<int64_t> sources;
  forEachPlace(places->shape, [&](llvm::ArrayRef<int64_t> place) {
    int64_t at = 0;
    for (size_t i = 0; i < place.size(); ++i)
      at += (i == *axis ? (*indices)[sources.size()] : place[i]) * strides[i];
    sources.push_back(at);
  });
  call.noteReadElements(0, sources, places);
  size_t next = 0;
  return {
      rearranged(data, places->shape, [&](llvm::ArrayRef<int64_t>) { return sources[next++]; })};
}

/// Flat index of the first element that each point of a GatherND or ScatterND selects, and the
/// number of elements that follow it.
struct Points {
  std::vector<int64_t> first;
  int64_t each = 1;
};

std::optional<Points> pointsOf(const Extents& data, const Ref& indices, int64_t batchAxes) {
  if (!indices || !indices->isInteger() || indices->rank() == 0)
    return std::nullopt;
  const auto depth = static_cast<size_t>(indices->shape.back());
  const auto batch = static_cast<size_t>(batchAxes);
  if (batch + depth > data.size() || batch >= indices->shape.size())
    return std::nullopt;
  for (size_t i = 0; i < batch; ++i)
    if (indices->shape[i] != data[i])
      return std::nullopt;
  const Extents strides = stridesOf(data);
  Points points;
  for (size_t i = batch + depth; i < data.size(); ++i)
    points.each *= data[i];
  Extents outer(indices->shape.begin(), indices->shape.end() - 1);
  size_t next = 0;
  bool isInside = true;
  forEachPlace(outer, [&](llvm::ArrayRef<int64_t> place) {
    int64_t at = 0;
    for (size_t i = 0; i < batch; ++i)
      at += place[i] * strides[i];
    for (size_t i = 0; i < depth; ++i) {
      int64_t index = indices->integers[next++];
      index += index < 0 ? data[batch + i] : 0;
      isInside &= index >= 0 && index < data[batch + i];
      at += index * strides[batch + i];
    }
    points.first.push_back(at);
  });
  return isInside ? std::optional<Points>(std::move(points)) : std::nullopt;
}

Results gatherNd(Call& call) {
  const Ref data = call.in(0);
  const int64_t batch = call.integer("batch_dims", 0);
  if (!call.in(1) || !call.in(1)->isInteger())
    return call.unsupported("its indices are unknown");
  auto points = pointsOf(data->shape, call.in(1), batch);
  if (!points)
    return call.fail("an index is out of range");
  std::vector<int64_t> sources;
  for (int64_t first : points->first)
    for (int64_t i = 0; i < points->each; ++i)
      sources.push_back(first + i);
  call.noteReadElements(0, sources, call.in(1));
  Extents shape(call.in(1)->shape.begin(), call.in(1)->shape.end() - 1);
  for (size_t i = static_cast<size_t>(batch + call.in(1)->shape.back()); i < data->shape.size();
       ++i)
    shape.push_back(data->shape[i]);
  size_t next = 0;
  return {
      rearranged(data, std::move(shape), [&](llvm::ArrayRef<int64_t>) { return sources[next++]; })};
}

/// The data with some elements replaced: `sources` has for each flat index of the data the flat
/// index in the data followed by the updates.
Results scattered(Call& call, const Ref& data, const Ref& updates,
                  llvm::function_ref<void(std::vector<int64_t>&)> place) {
  Ref both[] = {reshaped(data, {data->count()}), reshaped(updates, {updates->count()})};
  Ref list = concatenated(call, both, 0);
  if (!list)
    return call.unsupported("the data and the updates are too large");
  if (list->isHollow)
    return {reshaped(list, data->shape)};
  std::vector<int64_t> sources(static_cast<size_t>(data->count()));
  for (size_t i = 0; i < sources.size(); ++i)
    sources[i] = static_cast<int64_t>(i);
  place(sources);
  size_t next = 0;
  return {rearranged(list, data->shape, [&](llvm::ArrayRef<int64_t>) { return sources[next++]; })};
}

Results scatterNd(Call& call) {
  const Ref data = call.in(0);
  if (!call.in(1) || !call.in(1)->isInteger())
    return call.unsupported("its indices are unknown");
  auto points = pointsOf(data->shape, call.in(1), 0);
  if (call.text("reduction", "none") != "none")
    return call.unsupported("it reduces");
  if (!points)
    return call.fail("an index is out of range");
  Extents shape(call.in(1)->shape.begin(), call.in(1)->shape.end() - 1);
  shape.append(data->shape.begin() + call.in(1)->shape.back(), data->shape.end());
  if (call.in(2)->shape != shape)
    return call.fail("the updates have another shape");
  return scattered(call, data, call.in(2), [&](std::vector<int64_t>& sources) {
    int64_t next = data->count();
    for (int64_t first : points->first)
      for (int64_t i = 0; i < points->each; ++i)
        sources[static_cast<size_t>(first + i)] = next++;
  });
}

Results scatterElements(Call& call) {
  const Ref data = call.in(0);
  const Ref places = call.in(1);
  auto axis = axisOf(call.integer("axis", 0), data->rank());
  if (call.text("reduction", "none") != "none")
    return call.unsupported("it reduces");
  if (!places->isInteger())
    return call.unsupported("its indices are unknown");
  auto indices = axis ? indicesOf(places, data->shape[*axis]) : std::nullopt;
  if (!indices || places->rank() != data->rank())
    return call.fail("an index is out of range");
  if (!fitsBesides(places->shape, data->shape, *axis) || call.in(2)->shape != places->shape)
    return call.fail("its indices extend beyond the data or the updates");
  return scattered(call, data, call.in(2), [&](std::vector<int64_t>& sources) {
    const Extents strides = stridesOf(data->shape);
    int64_t next = 0;
    forEachPlace(places->shape, [&](llvm::ArrayRef<int64_t> place) {
      int64_t at = 0;
      for (size_t i = 0; i < place.size(); ++i)
        at += (i == *axis ? (*indices)[static_cast<size_t>(next)] : place[i]) * strides[i];
      sources[static_cast<size_t>(at)] = data->count() + next++;
    });
  });
}

Results tensorScatter(Call& call) {
  const Ref data = call.in(0);
  const Ref update = call.in(1);
  auto axis = axisOf(call.integer("axis", -2), data->rank());
  if (!axis || *axis == 0 || update->rank() != data->rank())
    return call.fail("its axis is out of range");
  if (!fitsBesides(update->shape, data->shape, *axis) || update->shape[0] != data->shape[0])
    return call.fail("the update extends beyond the data");
  const std::string mode = call.text("mode", "linear");
  const bool isRing = mode == "circular";
  if (!isRing && mode != "linear")
    return call.fail("its mode is unknown");
  const int64_t capacity = data->shape[*axis];
  const Ref starts = call.in(2);
  if (starts && (!starts->isInteger() || starts->count() != data->shape[0]))
    return call.fail("its indices do not fit");
  std::vector<int64_t> first(static_cast<size_t>(data->shape[0]), 0);
  for (size_t b = 0; starts && b < first.size(); ++b)
    first[b] = starts->integers[b];
  for (size_t b = 0; starts && isRing && b < first.size(); ++b)
    call.noteThreshold(starts->number(b), {fixedGrowth, double(capacity)}, /*isExact=*/false);
  for (int64_t start : first)
    if (start < 0 || (isRing ? capacity == 0 : start > capacity - update->shape[*axis]))
      return call.fail("it writes beyond the capacity");
  const Extents strides = stridesOf(data->shape);
  return scattered(call, data, update, [&](std::vector<int64_t>& sources) {
    int64_t next = data->count();
    forEachPlace(update->shape, [&](llvm::ArrayRef<int64_t> place) {
      int64_t at = 0;
      for (size_t i = 0; i < place.size(); ++i) {
        int64_t index = place[i];
        if (i == *axis)
          index = (first[static_cast<size_t>(place[0])] % capacity + index) % capacity;
        at += index * strides[i];
      }
      sources[static_cast<size_t>(at)] = next++;
    });
  });
}

Results oneHot(Call& call) {
  const Ref indices = call.in(0), depth = call.in(1), values = call.in(2);
  if (!indices->isInteger() || !depth->isInteger() || call.integer("axis", -1) != -1)
    return call.unsupported("its indices are unknown");
  if (depth->count() != 1 || values->shape != Extents{2})
    return call.fail("its depth or its values do not fit");
  if (!indices->growths.empty())
    call.math.thresholds.noteOpen(call.node.describe() + " compares indices that depend on sizes");
  Extents shape = indices->shape;
  shape.push_back(depth->integers[0]);
  if (elementCount(shape) < 0)
    return call.unsupported("the result is too large");
  int64_t next = 0;
  return {rearranged(values, shape, [&](llvm::ArrayRef<int64_t> place) {
    const int64_t index = indices->integers[static_cast<size_t>(next++ / shape.back())];
    return (index < 0 ? index + shape.back() : index) == place.back() ? 1 : 0;
  })};
}

} // namespace

void addIndexRules(RuleTable& rules) {
  rules["Gather"] = gather;
  rules["GatherElements"] = gatherElements;
  rules["GatherND"] = gatherNd;
  rules["ScatterND"] = scatterNd;
  rules["ScatterElements"] = scatterElements;
  rules["TensorScatter"] = tensorScatter;
  rules["OneHot"] = oneHot;
}

} // namespace kvopt::check
