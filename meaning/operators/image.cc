// Resampling of images: sums of elements nearby, weighted by their distance.
#include "meaning/definitions.h"

#include "llvm/ADT/STLExtras.h"
#include <cmath>

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;

/// Keys' cubic kernel.
Scalar cubicWeight(Scalar distance, double a) {
  const Scalar t = absolute(distance);
  const Scalar near = ((a + 2) * t - (a + 3)) * t * t + 1.0,
               far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
  return select(t <= 1, near, select(t < 2, far, t.real(0)));
}
Scalar linearWeight(Scalar distance) { return maximum(1.0 - absolute(distance), 0); }

// Resize.

/// What one axis of Resize needs.
struct ResizedAxis {
  unsigned axis = 0;
  Scalar extent, result; ///< of the operand and of the result
  Scalar scale;          ///< real
  Scalar first, last;    ///< the region, for tf_crop_and_resize
};

/// The place in the operand that belongs to a place of the result.
Scalar sourceOf(const ResizedAxis& axis, Scalar place, const std::string& mode) {
  const Scalar i = toReal(place), extent = toReal(axis.extent), result = toReal(axis.result);
  auto scaledRest = [&](Scalar from, Scalar to) { return i * (to - from) / (result - 1.0) + from; };
  const Scalar half = (i + 0.5) / axis.scale - 0.5;
  if (mode == "asymmetric")
    return i / axis.scale;
  if (mode == "align_corners")
    return select(
        axis.result > 1, [&] { return scaledRest(i.real(0), extent - 1.0); },
        [&] { return i.real(0); });
  if (mode == "pytorch_half_pixel")
    return select(
        axis.result > 1, [&] { return half; }, [&] { return i.real(0); });
  if (mode == "half_pixel_symmetric") {
    const Scalar adjustment = result / (axis.scale * extent);
    return extent / 2.0 * (1.0 - adjustment) + half;
  }
  if (mode == "tf_crop_and_resize")
    return select(
        axis.result > 1,
        [&] { return scaledRest(axis.first * (extent - 1.0), axis.last * (extent - 1.0)); },
        [&] { return 0.5 * (axis.first + axis.last) * (extent - 1.0); });
  return half;
}

struct Resampling {
  std::string mode, coordinates, nearest;
  double cubic = -0.75, outside = 0;
  bool isSmoothed = false, excludes = false;
};

Scalar nearestPlace(Scalar source, const std::string& rounding) {
  if (rounding == "floor")
    return toInteger(apply(Function::Floor, source));
  if (rounding == "ceil")
    return toInteger(apply(Function::Ceiling, source));
  return rounding == "round_prefer_ceil" ? toInteger(apply(Function::Floor, source + 0.5))
                                         : toInteger(apply(Function::Ceiling, source - 0.5));
}

/// The number of elements that a place of the result may read, its first one, and the weights.
struct Taps {
  Tensor places;  ///< [result, taps], clamped to the axis
  Tensor weights; ///< [result, taps]
  Scalar count;
};
Taps tapsOf(Call& call, const ResizedAxis& axis, const Resampling& how) {
  const bool isCubic = how.mode == "cubic";
  // Of a smaller image each place reads more, in proportion.
  const Scalar shrink = how.isSmoothed ? minimum(axis.scale, 1) : axis.scale.real(1);
  const Scalar reach = (isCubic ? 2.0 : 1.0) / shrink;
  Taps taps;
  taps.count = toInteger(apply(Function::Ceiling, reach)) * 2.0 + 2.0;
  auto placeOf = [=](Index index) {
    const Scalar source = sourceOf(axis, index[0], how.coordinates);
    return toInteger(apply(Function::Floor, source - reach)) + index[1];
  };
  auto weightOf = [=](Index index) {
    const Scalar source = sourceOf(axis, index[0], how.coordinates), place = placeOf(index);
    const Scalar distance = (toReal(place) - source) * shrink;
    const Scalar weight = isCubic ? cubicWeight(distance, how.cubic) : linearWeight(distance);
    if (!how.excludes)
      return weight;
    return select(both(place >= 0, place < axis.extent), weight, weight.real(0));
  };
  const Scalars extents = {axis.result, taps.count};
  taps.places = call.named(Tensor(extents, Type::Int64, [=](Index index) {
    return maximum(minimum(placeOf(index), axis.extent - 1.0), 0);
  }));
  const Tensor plain = call.named(Tensor(extents, Type::Double, weightOf));
  if (!how.isSmoothed && !how.excludes) {
    taps.weights = plain;
    return taps;
  }
  const Scalar count = taps.count;
  const Tensor totals = call.named(Tensor({axis.result}, Type::Double, [=](Index index) {
    return sum(count, [&](Scalar k) { return plain.at({index[0], k}); });
  }));
  taps.weights = call.named(Tensor(
      extents, Type::Double, [=](Index index) { return plain.at(index) / totals.at({index[0]}); }));
  return taps;
}

/// The axes that change, with scales from either operand. False where none is given.
bool readAxes(Call& call, const Tensor& data, std::vector<ResizedAxis>& axes, Scalars& extents,
              bool isCropped) {
  const bool isEarly = call.opset() < 11 || call.node().op().type() == "Upsample";
  const unsigned scaleOperand = isEarly ? 1 : 2;
  llvm::SmallVector<int64_t> along;
  for (unsigned axis = 0; axis < data.rank(); ++axis)
    along.push_back(axis);
  if (auto written = call.integersAttribute("axes"))
    along = *written;
  for (int64_t each : along) {
    ResizedAxis axis;
    axis.axis = call.axis(each, data.rank());
    if (call.isRefused())
      return false;
    axis.extent = data.extent(axis.axis);
    axes.push_back(axis);
  }
  call.ignoreAttributes({"keep_aspect_ratio_policy", "scales"});
  const bool hasSizes = !isEarly && call.has(3) && !call[3].extent(0).is(0);
  if (hasSizes) {
    const Scalars sizes = call.elements(3);
    if (sizes.size() != axes.size())
      return false;
    const llvm::StringRef policy = call.textAttribute("keep_aspect_ratio_policy", "stretch");
    Scalar common;
    for (size_t k = 0; k < axes.size(); ++k) {
      axes[k].result = sizes[k];
      axes[k].scale = toReal(sizes[k]) / toReal(axes[k].extent);
      common = k == 0                   ? axes[k].scale
               : policy == "not_larger" ? minimum(common, axes[k].scale)
                                        : maximum(common, axes[k].scale);
    }
    if (policy != "stretch")
      for (ResizedAxis& axis : axes) {
        axis.scale = common;
        axis.result = toInteger(apply(Function::Floor, common * toReal(axis.extent) + 0.5));
      }
  } else {
    Scalars scales;
    if (call.has(scaleOperand))
      scales = call.elements(scaleOperand);
    else if (const auto written = call.realsAttribute("scales"))
      for (double scale : *written)
        scales.push_back(call.real(scale));
    if (scales.size() != axes.size())
      return false;
    for (size_t k = 0; k < axes.size(); ++k) {
      axes[k].scale = scales[k];
      axes[k].result = toInteger(apply(Function::Floor, toReal(axes[k].extent) * scales[k]));
    }
  }
  if (isCropped) {
    const Scalars region = call.elements(1);
    if (region.size() != 2 * axes.size())
      return false;
    for (size_t k = 0; k < axes.size(); ++k) {
      axes[k].first = toReal(region[k]);
      axes[k].last = toReal(region[k + axes.size()]);
    }
  }
  extents = listed(data.extents());
  for (const ResizedAxis& axis : axes)
    extents[axis.axis] = axis.result;
  // What stays as it is is not resampled.
  if (!isCropped)
    llvm::erase_if(axes, [&](const ResizedAxis& axis) {
      return axis.result.number() && axis.result.number() == axis.extent.number() &&
             axis.result.formulas().realOf(axis.scale.expr()).value_or(1) == 1;
    });
  return true;
}

void defineResize(Call& call) {
  const Tensor data = call[0];
  const bool isEarly = call.opset() < 11 || call.node().op().type() == "Upsample";
  Resampling how;
  how.mode = call.textAttribute("mode", "nearest").str();
  if (how.mode == "bilinear")
    how.mode = "linear";
  how.coordinates =
      call.textAttribute("coordinate_transformation_mode", isEarly ? "asymmetric" : "half_pixel")
          .str();
  how.nearest = call.textAttribute("nearest_mode", isEarly ? "floor" : "round_prefer_floor").str();
  how.cubic = call.realAttribute("cubic_coeff_a", -0.75);
  how.outside = call.realAttribute("extrapolation_value", 0);
  how.isSmoothed = call.integerAttribute("antialias", 0) != 0;
  how.excludes = call.integerAttribute("exclude_outside", 0) != 0;
  auto isOneOf = [](const std::string& word, std::initializer_list<const char*> known) {
    return llvm::any_of(known, [&](const char* each) { return word == each; });
  };
  if (!isOneOf(how.mode, {"nearest", "linear", "cubic"}) ||
      !isOneOf(how.coordinates, {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
                                 "align_corners", "asymmetric", "tf_crop_and_resize"}) ||
      !isOneOf(how.nearest, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}))
    return call.refuse("a mode is not one of ONNX's");
  const bool isCropped = how.coordinates == "tf_crop_and_resize";
  std::vector<ResizedAxis> axes;
  Scalars extents;
  if (!readAxes(call, data, axes, extents, isCropped))
    return call.reject("neither scales nor sizes are one for each axis");
  std::vector<Taps> taps;
  if (how.mode != "nearest")
    for (const ResizedAxis& axis : axes)
      taps.push_back(tapsOf(call, axis, how));
  const Type type = data.type();
  const Scalar outside = call.number(how.outside, type), yes = call.boolean(true);
  call.result(Tensor(extents, type, [=](Index index) {
    Scalar isInside = yes;
    if (isCropped)
      for (const ResizedAxis& axis : axes) {
        const Scalar source = sourceOf(axis, index[axis.axis], how.coordinates);
        isInside = both(isInside, both(source >= 0, source <= toReal(axis.extent) - 1.0));
      }
    Scalars place = listed(index);
    auto value = [&]() -> Scalar {
      if (how.mode == "nearest") {
        for (const ResizedAxis& axis : axes) {
          const Scalar source = sourceOf(axis, index[axis.axis], how.coordinates);
          place[axis.axis] =
              maximum(minimum(nearestPlace(source, how.nearest), axis.extent - 1.0), 0);
        }
        return data.at(place);
      }
      std::function<Scalar(size_t)> inner = [&](size_t k) -> Scalar {
        if (k == axes.size())
          return toReal(data.at(place));
        const Scalar row = index[axes[k].axis];
        return sum(taps[k].count, [&](Scalar tap) {
          place[axes[k].axis] = taps[k].places.at({row, tap});
          const Scalar weight = taps[k].weights.at({row, tap});
          return weight * inner(k + 1);
        });
      };
      const Scalar all = inner(0);
      return sortOf(type) == Sort::Real ? all
                                        : wrapped(toInteger(apply(Function::Round, all)), type);
    };
    return select(
        isInside, [&] { return value(); }, [&] { return outside; });
  }));
}

// Grids.

struct Sampling {
  std::string mode, padding;
  bool isAligned = false;
};

/// From -1 … 1 to places of an axis.
Scalar placeOnAxis(Scalar x, Scalar extent, bool isAligned) {
  const Scalar size = toReal(extent);
  return isAligned ? (x + 1.0) * 0.5 * (size - 1.0) : ((x + 1.0) * size - 1.0) * 0.5;
}
/// To and fro between both ends of an axis.
Scalar reflected(Scalar x, Scalar extent, bool isAligned) {
  const Scalar size = toReal(extent);
  const Scalar low = size.real(isAligned ? 0 : -0.5), high = isAligned ? size - 1.0 : size - 0.5;
  const Scalar width = high - low, distance = absolute(x - low);
  const Scalar times = apply(Function::Floor, distance / width);
  const Scalar rest = distance - times * width;
  return select(same(remainder(toInteger(times), 2), 0), rest + low, high - rest);
}
Scalar withinAxis(Scalar x, Scalar extent) { return maximum(minimum(x, toReal(extent) - 1.0), 0); }

void defineGridSample(Call& call) {
  const Tensor data = call[0], grid = call[1];
  if (data.rank() < 3 || grid.rank() != data.rank())
    return call.reject("the operands are not images with a grid");
  const size_t count = data.rank() - 2;
  Sampling how;
  how.mode = call.textAttribute("mode", "linear").str();
  if (how.mode == "bilinear")
    how.mode = "linear";
  if (how.mode == "bicubic")
    how.mode = "cubic";
  how.padding = call.textAttribute("padding_mode", "zeros").str();
  how.isAligned = call.integerAttribute("align_corners", 0) != 0;
  if ((how.mode != "nearest" && how.mode != "linear" && how.mode != "cubic") ||
      (how.padding != "zeros" && how.padding != "border" && how.padding != "reflection"))
    return call.refuse("a mode is not one of ONNX's");
  Scalars extents = {data.extent(0), data.extent(1)};
  for (size_t axis = 0; axis < count; ++axis)
    extents.push_back(grid.extent(static_cast<unsigned>(axis) + 1));
  const Scalars space = listed(data.extents().drop_front(2));
  call.result(Tensor(extents, data.type(), [=](Index index) {
    const Scalar zero = index[0].integer(0);
    Scalars sources;
    for (size_t axis = 0; axis < count; ++axis) {
      Scalars at = {index[0]};
      at.append(index.begin() + 2, index.end());
      at.push_back(zero.integer(static_cast<int64_t>(count - 1 - axis)));
      Scalar x = placeOnAxis(grid.at(at), space[axis], how.isAligned);
      if (how.mode == "nearest")
        x = apply(Function::Round, x);
      if (how.padding == "border")
        x = withinAxis(x, space[axis]);
      else if (how.padding == "reflection" && how.mode != "cubic")
        x = withinAxis(reflected(x, space[axis], how.isAligned), space[axis]);
      sources.push_back(x);
    }
    auto elementAt = [&](Scalars place) {
      Scalar isInside = zero.boolean(true);
      for (size_t axis = 0; axis < count; ++axis) {
        if (how.padding == "border")
          place[axis] = maximum(minimum(place[axis], space[axis] - 1.0), 0);
        else if (how.padding == "reflection")
          place[axis] = toInteger(withinAxis(
              apply(Function::Round, reflected(toReal(place[axis]), space[axis], how.isAligned)),
              space[axis]));
        isInside = both(isInside, both(place[axis] >= 0, place[axis] < space[axis]));
      }
      return select(
          isInside, [&] { return data.at(joined(index.take_front(2), place)); },
          [&] { return zero.real(0); });
    };
    if (how.mode == "nearest") {
      Scalars place;
      for (Scalar source : sources)
        place.push_back(toInteger(apply(Function::Round, source)));
      return elementAt(place);
    }
    const bool isCubic = how.mode == "cubic";
    std::function<Scalar(Scalars)> inner = [&](const Scalars& place) -> Scalar {
      if (place.size() == count)
        return elementAt(place);
      const Scalar source = sources[place.size()];
      const Scalar low = toInteger(apply(Function::Floor, source));
      Scalar all;
      for (int64_t tap = isCubic ? -1 : 0; tap <= (isCubic ? 2 : 1); ++tap) {
        const Scalar at = low + static_cast<double>(tap), distance = source - toReal(at);
        const Scalar weight = isCubic ? cubicWeight(distance, -0.75) : linearWeight(distance);
        const Scalar part = weight * inner(joined(place, {at}));
        all = all.expr() ? all + part : part;
      }
      return all;
    };
    return inner({});
  }));
}
void defineAffineGrid(Call& call) {
  const Tensor matrix = call[0];
  const Scalars sizes = call.elements(1);
  if (call.isRefused() || sizes.size() < 4)
    return call.reject("the size is not one of images");
  const bool isAligned = call.integerAttribute("align_corners", 0) != 0;
  const Scalars space(sizes.begin() + 2, sizes.end());
  const auto count = static_cast<int64_t>(space.size());
  call.result(Tensor(joined({sizes[0]}, joined(space, {call.integer(count)})), matrix.type(),
                     [=](Index index) {
                       const Scalar row = index.back(), batch = index[0];
                       Scalar all = matrix.at({batch, row, row.integer(count)});
                       for (int64_t k = 0; k < count; ++k) {
                         // x is the last axis.
                         const auto axis = static_cast<size_t>(count - 1 - k);
                         const Scalar i = toReal(index[axis + 1]), size = toReal(space[axis]);
                         const Scalar place = isAligned ? i * 2.0 / (size - 1.0) - 1.0
                                                        : (i * 2.0 + 1.0) / size - 1.0;
                         all = all + matrix.at({batch, row, row.integer(k)}) * place;
                       }
                       return all;
                     }));
}

} // namespace

void register_image(Definitions& all) {
  all.add({"Resize", "Upsample"}, defineResize);
  all.add("GridSample", defineGridSample, 16);
  all.add("AffineGrid", defineAffineGrid, 20);
}

} // namespace kvopt::meaning
