// Operators over windows: convolutions, pools, and what undoes them.
#include "meaning/definitions.h"
#include "meaning/operators/products.h"
#include "meaning/operators/reductions.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include <cstdlib>
#include <limits>

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;
using Numbers = llvm::SmallVector<int64_t>;

/// Windows over the spatial axes, those from 2 on.
struct Windows {
  Numbers kernel, dilations, strides;
  Scalars before, after; ///< padding
  Scalars results;       ///< number of windows

  size_t count() const { return kernel.size(); }
  /// Where element k of the window of each result is.
  Scalar place(size_t axis, Scalar result, Scalar k) const {
    return result * static_cast<double>(strides[axis]) + k * static_cast<double>(dilations[axis]) -
           before[axis];
  }
};

Numbers listOrOnes(Call& call, llvm::StringRef name, size_t count, int64_t otherwise = 1) {
  Numbers all = call.integersAttribute(name).value_or(Numbers());
  if (all.empty())
    all.assign(count, otherwise);
  if (all.size() != count)
    call.reject(formatted("{} has {} numbers, not {}", name, all.size(), count));
  all.resize(count, otherwise);
  return all;
}

/// SAME_UPPER and SAME_LOWER have as many windows as steps fit, with the padding that this takes.
std::optional<Windows> windowsOf(Call& call, const Tensor& data, Numbers kernel) {
  const size_t count = data.rank() < 2 ? 0 : data.rank() - 2;
  if (data.rank() < 3) {
    call.reject(formatted("{} has no spatial axes", call.text(0)));
    return std::nullopt;
  }
  if (kernel.size() != count) {
    call.reject(formatted("a kernel of {} axes for {}", kernel.size(), call.text(0)));
    return std::nullopt;
  }
  Windows windows;
  windows.kernel = std::move(kernel);
  windows.dilations = listOrOnes(call, "dilations", count);
  windows.strides = listOrOnes(call, "strides", count);
  const Numbers pads = listOrOnes(call, "pads", 2 * count, 0);
  const llvm::StringRef automatic = call.textAttribute("auto_pad", "NOTSET");
  const bool isUp = call.integerAttribute("ceil_mode", 0) != 0;
  for (size_t axis = 0; axis < count; ++axis) {
    const Scalar extent = data.extent(static_cast<unsigned>(axis) + 2);
    const int64_t stride = windows.strides[axis];
    int64_t size = 0;
    constexpr int64_t most = int64_t(1) << 31;
    if (__builtin_mul_overflow(windows.kernel[axis] - 1, windows.dilations[axis], &size) ||
        stride < 1 || stride > most || windows.kernel[axis] < 1 || windows.dilations[axis] < 1 ||
        ++size > most || std::abs(pads[axis]) > most || std::abs(pads[axis + count]) > most) {
      call.refuse("windows without elements or steps, or of more than 2^31 are not defined");
      return std::nullopt;
    }
    Scalar before = extent.integer(pads[axis]), after = extent.integer(pads[axis + count]),
           windowCount;
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      windowCount = quotientUp(extent, extent.integer(stride));
      const Scalar needed = maximum((windowCount - 1.0) * static_cast<double>(stride) +
                                        static_cast<double>(size) - extent,
                                    0);
      const Scalar half = quotient(needed, 2);
      before = automatic == "SAME_UPPER" ? half : needed - half;
      after = needed - before;
    } else {
      if (automatic == "VALID")
        before = after = extent.integer(0);
      const Scalar room = extent + before + after - static_cast<double>(size);
      windowCount = quotient(room, stride) + 1.0;
      if (isUp) {
        // A window that would start in the padding behind is left out.
        const Scalar up = quotientUp(room, room.integer(stride)) + 1.0;
        windowCount =
            select((up - 1.0) * static_cast<double>(stride) < extent + before, up, up - 1.0);
      }
    }
    windows.before.push_back(before);
    windows.after.push_back(after);
    windows.results.push_back(windowCount);
  }
  return windows;
}

/// A reduction over all elements of a window.
Scalar overKernel(Reduction reduction, Scalar like, llvm::ArrayRef<int64_t> kernel,
                  llvm::function_ref<Scalar(Index)> body) {
  Scalars place;
  std::function<Scalar(size_t)> inner = [&](size_t axis) -> Scalar {
    if (axis == kernel.size())
      return body(place);
    return reduce(reduction, like.integer(kernel[axis]), [&](Scalar k) {
      place.push_back(k);
      const Scalar all = inner(axis + 1);
      place.pop_back();
      return all;
    });
  };
  return inner(0);
}

Scalar isInside(Index place, Index extents) {
  Scalar all = place[0].boolean(true);
  for (size_t axis = 0; axis < place.size(); ++axis)
    all = both(all, both(place[axis] >= 0, place[axis] < extents[axis]));
  return all;
}

Numbers kernelOf(Call& call, const Tensor& weights) {
  call.ignoreAttributes({"kernel_shape"}); // that of the weights
  Numbers kernel;
  for (unsigned axis = 2; axis < weights.rank(); ++axis) {
    const std::optional<int64_t> extent = weights.extent(axis).number();
    if (!extent)
      call.refuse("the kernel's extents are not known");
    kernel.push_back(extent.value_or(1));
  }
  return kernel;
}

Tensor convolution(Call& call, const Tensor& data, const Tensor& weights, const Tensor& bias,
                   Type type) {
  if (data.rank() > 2 && call.hasRank(1, data.rank())) {
    Scalars open(data.rank(), Scalar(call.formulas(), call.formulas().unknown(Sort::Integer)));
    open[0] = data.extent(0);
    open[1] = weights.extent(0);
    call.extents(0, type, open);
  }
  const std::optional<Windows> found = windowsOf(call, data, kernelOf(call, weights));
  const int64_t groups = call.integerAttribute("group", 1);
  if (!found || groups < 1) {
    call.reject("a convolution without groups");
    return data;
  }
  const Windows windows = *found;
  const Scalar channels = weights.extent(1), perGroup = quotient(weights.extent(0), groups);
  call.equalExtents(channels * static_cast<double>(groups), data.extent(1), "channels differ");
  const Scalars space = listed(data.extents().drop_front(2));
  return Tensor(
      joined({data.extent(0), weights.extent(0)}, windows.results), type, [=](Index index) {
        const Scalar group = quotient(index[1], perGroup);
        const Scalar all = sum(channels, [&](Scalar channel) {
          return overKernel(Reduction::Sum, channel, windows.kernel, [&](Index k) {
            Scalars place;
            for (size_t axis = 0; axis < k.size(); ++axis)
              place.push_back(windows.place(axis, index[axis + 2], k[axis]));
            const Scalar from = group * channels + channel;
            return select(
                isInside(place, space),
                [&] {
                  return data.at(joined({index[0], from}, place)) *
                         weights.at(joined({index[1], channel}, k));
                },
                [&] { return data.type() == Type::Int32 ? channel.integer(0) : channel.real(0); });
          });
        });
        return bias ? all + bias.at({index[1]}) : all;
      });
}
void defineConv(Call& call) {
  call.result(
      convolution(call, call[0], call[1], call.has(2) ? call[2] : Tensor(), call[0].type()));
}
void defineConvInteger(Call& call) {
  call.result(convolution(call, withoutZeroPoint(call, call[0], 2, 1),
                          withoutZeroPoint(call, call[1], 3, 0), Tensor(), Type::Int32));
}
/// Each element of the operand is spread over a window of the result.
void defineConvTranspose(Call& call) {
  const Tensor data = call[0], weights = call[1];
  const Tensor bias = call.has(2) ? call[2] : Tensor();
  const Numbers kernel = kernelOf(call, weights);
  const size_t count = kernel.size();
  const Numbers dilations = listOrOnes(call, "dilations", count),
                strides = listOrOnes(call, "strides", count),
                extra = listOrOnes(call, "output_padding", count, 0),
                pads = listOrOnes(call, "pads", 2 * count, 0);
  const int64_t groups = call.integerAttribute("group", 1);
  if (call.isRefused() || data.rank() != count + 2 || groups < 1)
    return call.reject("the kernel has another number of axes");
  const llvm::StringRef automatic = call.textAttribute("auto_pad", "NOTSET");
  const auto wanted = call.integersAttribute("output_shape");
  if (wanted && wanted->size() != count)
    return call.reject("output_shape is not one extent for each axis");
  Scalars before, results;
  for (size_t axis = 0; axis < count; ++axis) {
    const Scalar extent = data.extent(static_cast<unsigned>(axis) + 2);
    const Scalar full = (extent - 1.0) * static_cast<double>(strides[axis]) +
                        static_cast<double>(extra[axis] + (kernel[axis] - 1) * dilations[axis] + 1);
    Scalar lead = extent.integer(pads[axis]),
           total = lead + static_cast<double>(pads[axis + count]);
    if (wanted || automatic.startswith("SAME")) {
      total = wanted ? full - static_cast<double>((*wanted)[axis])
                     : full - extent * static_cast<double>(strides[axis]);
      const Scalar half = quotient(total, 2);
      lead = automatic == "SAME_UPPER" ? half : total - half;
    }
    before.push_back(lead);
    results.push_back(full - total);
  }
  const Scalar perGroup = quotient(data.extent(1), groups), channels = weights.extent(1);
  const Scalars space = listed(data.extents().drop_front(2));
  call.result(Tensor(joined({data.extent(0), channels * static_cast<double>(groups)}, results),
                     data.type(), [=](Index index) {
                       const Scalar group = quotient(index[1], channels);
                       const Scalar all = sum(perGroup, [&](Scalar channel) {
                         return overKernel(Reduction::Sum, channel, kernel, [&](Index k) {
                           Scalars place;
                           Scalar isStep = channel.boolean(true);
                           for (size_t axis = 0; axis < k.size(); ++axis) {
                             const Scalar at = index[axis + 2] + before[axis] -
                                               k[axis] * static_cast<double>(dilations[axis]);
                             place.push_back(quotient(at, strides[axis]));
                             isStep = both(isStep, same(remainder(at, strides[axis]), 0));
                           }
                           const Scalar from = group * perGroup + channel;
                           return select(
                               both(isStep, isInside(place, space)),
                               [&] {
                                 return data.at(joined({index[0], from}, place)) *
                                        weights.at(
                                            joined({from, remainder(index[1], channels)}, k));
                               },
                               [&] { return channel.real(0); });
                         });
                       });
                       return bias ? all + bias.at({index[1]}) : all;
                     }));
}

// Pools.

void defineAveragePool(Call& call) {
  const Tensor data = call[0];
  const auto found =
      windowsOf(call, data, call.integersAttribute("kernel_shape").value_or(Numbers()));
  if (!found)
    return;
  const Windows windows = *found;
  const bool countsPadding = call.integerAttribute("count_include_pad", 0) != 0;
  const Scalars space = listed(data.extents().drop_front(2));
  call.result(
      Tensor(joined(data.extents().take_front(2), windows.results), data.type(), [=](Index index) {
        auto over = [&](llvm::function_ref<Scalar(Index)> body) {
          return overKernel(Reduction::Sum, index[0], windows.kernel, [&](Index k) {
            Scalars place;
            for (size_t axis = 0; axis < k.size(); ++axis)
              place.push_back(windows.place(axis, index[axis + 2], k[axis]));
            return body(place);
          });
        };
        const Scalar all = over([&](Index place) {
          return select(
              isInside(place, space), [&] { return data.at(joined(index.take_front(2), place)); },
              [&] { return index[0].real(0); });
        });
        const Scalar number = over([&](Index place) {
          Scalar isCounted = isInside(place, space);
          if (countsPadding) {
            isCounted = index[0].boolean(true);
            for (size_t axis = 0; axis < place.size(); ++axis)
              isCounted = both(isCounted, both(place[axis] >= -windows.before[axis],
                                               place[axis] < space[axis] + windows.after[axis]));
          }
          return select(isCounted, index[0].integer(1), index[0].integer(0));
        });
        return all / toReal(number);
      }));
}
/// Result 1 is the place of the first largest element, counted over the whole operand.
void defineMaxPool(Call& call) {
  const Tensor data = call[0];
  const auto found =
      windowsOf(call, data, call.integersAttribute("kernel_shape").value_or(Numbers()));
  if (!found)
    return;
  const Windows windows = *found;
  const Scalars space = listed(data.extents().drop_front(2));
  const Type type = data.type();
  const Scalar lowest = sortOf(type) == Sort::Real
                            ? call.real(-std::numeric_limits<double>::infinity())
                            : call.integer(type == Type::Int8 ? -128 : 0);
  auto elementAt = [=](Index index, Index place) {
    return select(
        isInside(place, space), [&] { return data.at(joined(index.take_front(2), place)); },
        [&] { return lowest; });
  };
  auto placeOf = [=](Index index, Index k) {
    Scalars place;
    for (size_t axis = 0; axis < k.size(); ++axis)
      place.push_back(windows.place(axis, index[axis + 2], k[axis]));
    return place;
  };
  const Scalars extents = joined(data.extents().take_front(2), windows.results);
  const Tensor most = Tensor(extents, type, [=](Index index) {
    return overKernel(Reduction::Maximum, index[0], windows.kernel,
                      [&](Index k) { return elementAt(index, placeOf(index, k)); });
  });
  call.ignoreAttributes({"storage_order"});
  if (!call.wants(1))
    return call.result(most);
  const Tensor largest = call.named(most);
  call.result(largest);
  const bool isColumns = call.integerAttribute("storage_order", 0) != 0;
  Scalars kernel;
  for (int64_t size : windows.kernel)
    kernel.push_back(call.integer(size));
  const Scalar size = product(call.formulas(), kernel);
  Formulas& f = call.formulas();
  call.result(1, Tensor(extents, Type::Int64, [=, &f](Index index) {
                const Scalar value = largest.at(index);
                const Scalar first = reduce(Reduction::Minimum, size, [&](Scalar k) {
                  const Scalars place = placeOf(index, unflat(k, kernel));
                  return select(both(isInside(place, space), same(elementAt(index, place), value)),
                                k, size);
                });
                Scalars place = placeOf(index, unflat(first, kernel)), order = space;
                if (isColumns) {
                  std::reverse(place.begin(), place.end());
                  std::reverse(order.begin(), order.end());
                }
                return flat(f, joined(index.take_front(2), place),
                            joined(data.extents().take_front(2), order));
              }));
}
void defineLpPool(Call& call) {
  const Tensor data = call[0];
  const auto found =
      windowsOf(call, data, call.integersAttribute("kernel_shape").value_or(Numbers()));
  if (!found)
    return;
  const Windows windows = *found;
  const auto p = static_cast<double>(call.integerAttribute("p", 2));
  const Scalars space = listed(data.extents().drop_front(2));
  call.result(
      Tensor(joined(data.extents().take_front(2), windows.results), data.type(), [=](Index index) {
        const Scalar all = overKernel(Reduction::Sum, index[0], windows.kernel, [&](Index k) {
          Scalars place;
          for (size_t axis = 0; axis < k.size(); ++axis)
            place.push_back(windows.place(axis, index[axis + 2], k[axis]));
          return select(
              isInside(place, space),
              [&] {
                const Scalar x = data.at(joined(index.take_front(2), place));
                return apply(Function::Power, absolute(x), x.real(p));
              },
              [&] { return index[0].real(0); });
        });
        return apply(Function::Power, all, all.real(1 / p));
      }));
}
void defineGlobalPool(Call& call) {
  const Tensor data = call[0];
  if (data.rank() < 3)
    return call.reject("the operand has no space");
  llvm::SmallVector<unsigned> axes;
  for (unsigned axis = 2; axis < data.rank(); ++axis)
    axes.push_back(axis);
  const llvm::StringRef name = call.node().op().type();
  const auto p = static_cast<double>(call.integerAttribute("p", 2));
  if (name == "GlobalMaxPool")
    call.result(reduced(data, axes, true, Reduction::Maximum));
  else if (name == "GlobalAveragePool")
    call.result(reduced(data, axes, true, Reduction::Sum, nullptr,
                        [](Scalar all, Scalar count) { return all / toReal(count); }));
  else
    call.result(reduced(
        data, axes, true, Reduction::Sum,
        [=](Scalar x) { return apply(Function::Power, absolute(x), x.real(p)); },
        [=](Scalar all, Scalar) { return apply(Function::Power, all, all.real(1 / p)); }));
}
/// The places of MaxPool, backwards. Of two that write to one place the last one counts.
void defineMaxUnpool(Call& call) {
  const Tensor data = call[0], places = call[1];
  const Numbers kernel = call.integersAttribute("kernel_shape").value_or(Numbers());
  const size_t count = kernel.size();
  const Numbers strides = listOrOnes(call, "strides", count),
                pads = listOrOnes(call, "pads", 2 * count, 0);
  if (call.isRefused() || data.rank() != count + 2)
    return call.reject("the kernel has another number of axes");
  Scalars full = listed(data.extents().take_front(2));
  for (size_t axis = 0; axis < count; ++axis)
    full.push_back((data.extent(static_cast<unsigned>(axis) + 2) - 1.0) *
                       static_cast<double>(strides[axis]) +
                   static_cast<double>(kernel[axis] - pads[axis] - pads[axis + count]));
  const Scalars extents = call.has(2) ? call.elements(2) : full, from = listed(data.extents());
  const Scalar total = data.count(call.formulas());
  Formulas& f = call.formulas();
  const Scalar room = product(f, full);
  call.requireAt(
      listed(places.extents()),
      [=](Index index) {
        const Scalar place = places.at(index);
        return both(place >= 0, place < room);
      },
      "a place is outside of the result");
  call.result(Tensor(extents, data.type(), [=, &f](Index index) {
    const Scalar own = flat(f, index, full);
    return last(
        total, [&](Scalar k) { return same(places.at(unflat(k, from)), own); },
        [&](Scalar k) { return data.at(unflat(k, from)); }, index[0].real(0));
  }));
}
/// Columns back to an image: blocks that overlap are added up.
void defineCol2Im(Call& call) {
  const Tensor data = call[0];
  const Numbers image = call.numbers(1), block = call.numbers(2);
  const size_t count = image.size();
  const Numbers dilations = listOrOnes(call, "dilations", count),
                strides = listOrOnes(call, "strides", count),
                pads = listOrOnes(call, "pads", 2 * count, 0);
  if (call.isRefused() || block.size() != count || data.rank() != 3)
    return call.reject("the block has another number of axes");
  Scalars sizes, windows, extents;
  for (size_t axis = 0; axis < count; ++axis) {
    sizes.push_back(call.integer(block[axis]));
    windows.push_back(call.integer(
        (image[axis] + pads[axis] + pads[axis + count] - dilations[axis] * (block[axis] - 1) - 1) /
            strides[axis] +
        1));
    extents.push_back(call.integer(image[axis]));
  }
  const Scalar perChannel = product(call.formulas(), sizes);
  Formulas& f = call.formulas();
  call.result(Tensor(joined({data.extent(0), quotient(data.extent(1), perChannel)}, extents),
                     data.type(), [=, &f](Index index) {
                       return overKernel(Reduction::Sum, index[0], block, [&](Index k) {
                         Scalars window;
                         Scalar isThere = index[0].boolean(true);
                         for (size_t axis = 0; axis < count; ++axis) {
                           const Scalar at = index[axis + 2] + static_cast<double>(pads[axis]) -
                                             k[axis] * static_cast<double>(dilations[axis]);
                           window.push_back(quotient(at, strides[axis]));
                           isThere = both(isThere, same(remainder(at, strides[axis]), 0));
                         }
                         return select(
                             both(isThere, isInside(window, windows)),
                             [&] {
                               return data.at({index[0], index[1] * perChannel + flat(f, k, sizes),
                                               flat(f, window, windows)});
                             },
                             [&] { return index[0].real(0); });
                       });
                     }));
}

} // namespace

void register_window(Definitions& all) {
  all.add("Conv", defineConv);
  all.add("ConvInteger", defineConvInteger, 10);
  all.add("ConvTranspose", defineConvTranspose);
  all.add("AveragePool", defineAveragePool);
  all.add("MaxPool", defineMaxPool);
  all.add("LpPool", defineLpPool, 2);
  all.add({"GlobalAveragePool", "GlobalMaxPool"}, defineGlobalPool);
  all.add("GlobalLpPool", defineGlobalPool, 2);
  all.add("MaxUnpool", defineMaxUnpool, 9);
  all.add("Col2Im", defineCol2Im, 18);
}

} // namespace kvopt::meaning
