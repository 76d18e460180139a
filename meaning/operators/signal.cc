// Windows and Fourier transforms, and steps of optimizers.
#include "meaning/definitions.h"

#include <numbers>

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;

/// a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N), with N one less where it is not periodic.
void cosineWindow(Call& call, double a0, double a1, double a2) {
  const Scalar size = call.single(0);
  const bool isPeriodic = call.integerAttribute("periodic", 1) != 0;
  const auto type = static_cast<Type>(call.integerAttribute("output_datatype", 1));
  call.result(Tensor({size}, type, [=](Index index) {
    const Scalar period = toReal(isPeriodic ? size : size - 1.0);
    const Scalar x = toReal(index[0]) * (2 * std::numbers::pi) / period;
    return a0 - a1 * apply(Function::Cosine, x) + a2 * apply(Function::Cosine, 2.0 * x);
  }));
}
void defineHann(Call& call) { cosineWindow(call, 0.5, 0.5, 0); }
void defineHamming(Call& call) { cosineWindow(call, 25.0 / 46, 21.0 / 46, 0); }
void defineBlackman(Call& call) { cosineWindow(call, 0.42, 0.5, 0.08); }

/// e^(+-2 pi i k n / N) as its cosine and its sine. k*n is taken modulo N, which keeps it exact.
std::pair<Scalar, Scalar> rootOfUnity(Scalar k, Scalar n, Scalar size, double sign) {
  const Scalar angle =
      toReal(remainder(k * n, size)) * (sign * 2 * std::numbers::pi) / toReal(size);
  return {apply(Function::Cosine, angle), apply(Function::Sine, angle)};
}

void defineDft(Call& call) {
  const Tensor data = call[0];
  int64_t written = call.integerAttribute("axis", call.opset() < 20 ? 1 : -2);
  if (call.has(2)) {
    const std::optional<int64_t> number = call.single(2).number();
    if (!number)
      return call.refuse("the axis is not constant");
    written = *number;
  }
  const unsigned axis = call.axis(written, data.rank()), parts = data.rank() - 1;
  if (call.isRefused() || axis == parts)
    return call.refuse("the axis is that of the parts of numbers");
  const bool isInverse = call.integerAttribute("inverse", 0) != 0,
             isOneSided = call.integerAttribute("onesided", 0) != 0,
             isComplex = data.extent(parts).is(2);
  const Scalar size = call.has(1) ? call.single(1) : data.extent(axis);
  if (isInverse && isOneSided)
    return call.refuse("a transform back from one side is not defined");
  Scalars extents = replaced(data.extents(), axis, isOneSided ? quotient(size, 2) + 1.0 : size);
  extents[parts] = call.integer(2);
  call.result(Tensor(extents, data.type(), [=](Index index) {
    const Scalar zero = index[0].integer(0), isReal = same(index[parts], 0);
    const Scalar all = sum(size, [&](Scalar n) {
      auto part = [&](int64_t which) {
        return select(
            n < data.extent(axis),
            [&] { return data.at(replaced(replaced(index, axis, n), parts, zero.integer(which))); },
            [&] { return zero.real(0); });
      };
      const auto [cosine, sine] = rootOfUnity(index[axis], n, size, isInverse ? 1 : -1);
      const Scalar real = part(0);
      if (!isComplex)
        return select(isReal, real * cosine, real * sine);
      const Scalar imaginary = part(1);
      return select(isReal, real * cosine - imaginary * sine, real * sine + imaginary * cosine);
    });
    return isInverse ? all / toReal(size) : all;
  }));
}
void defineStft(Call& call) {
  const Tensor signal = call[0];
  const Scalar step = call.single(1);
  const Tensor window = call.has(2) ? call[2] : Tensor();
  if (!window && !call.has(3))
    return call.reject("neither a window nor its length is given");
  const Scalar size = call.has(3) ? call.single(3) : window.extent(0);
  const bool isOneSided = call.integerAttribute("onesided", 1) != 0;
  const Scalar frames = quotient(signal.extent(1) - size, step) + 1.0;
  call.result(Tensor(
      {signal.extent(0), frames, isOneSided ? quotient(size, 2) + 1.0 : size, call.integer(2)},
      signal.type(), [=](Index index) {
        return sum(size, [&](Scalar n) {
          Scalars place = {index[0], index[1] * step + n};
          if (signal.rank() == 3)
            place.push_back(n.integer(0));
          const auto [cosine, sine] = rootOfUnity(index[2], n, size, -1);
          Scalar value = signal.at(place);
          if (window)
            value = value * window.at({n});
          return value * select(same(index[3], 0), cosine, sine);
        });
      }));
}

// Steps of optimizers: operands are the rate, the number of the step, then weights, gradients and
// states, each as a list.

struct Optimizer {
  Scalar rate, step;
  unsigned count = 0; ///< of weights
  unsigned states = 0;
};
Optimizer optimizerOf(Call& call, unsigned states) {
  Optimizer optimizer;
  optimizer.rate = toReal(call.single(0));
  optimizer.step = call.single(1);
  optimizer.states = states;
  if (call.count() < 2 || (call.count() - 2) % (2 + states) != 0)
    call.reject("the lists of operands are not alike");
  optimizer.count = (call.count() - 2) / (2 + states);
  return optimizer;
}
/// Operand `list` (0 weights, 1 gradients, then states) of weight k.
const Tensor& itemOf(Call& call, const Optimizer& optimizer, unsigned list, unsigned k) {
  return call[2 + list * optimizer.count + k];
}
void defineAdagrad(Call& call) {
  const Optimizer optimizer = optimizerOf(call, 1);
  const double decay = call.realAttribute("decay_factor", 0),
               epsilon = call.realAttribute("epsilon", 1e-6),
               norm = call.realAttribute("norm_coefficient", 0);
  if (call.isRefused())
    return;
  const Scalar rate = optimizer.rate / (1.0 + toReal(optimizer.step) * decay);
  for (unsigned k = 0; k < optimizer.count; ++k) {
    const Tensor x = itemOf(call, optimizer, 0, k), g = itemOf(call, optimizer, 1, k);
    const Tensor squares =
        call.elementwise({x, g, itemOf(call, optimizer, 2, k)}, x.type(), [=](auto e) {
          const Scalar gradient = e[1] + e[0] * norm;
          return e[2] + gradient * gradient;
        });
    call.result(k, call.elementwise({x, g, squares}, x.type(), [=](auto e) {
      return e[0] - (e[1] + e[0] * norm) * rate / (apply(Function::SquareRoot, e[2]) + epsilon);
    }));
    call.result(k + optimizer.count, squares);
  }
}
void defineMomentum(Call& call) {
  const Optimizer optimizer = optimizerOf(call, 1);
  const double alpha = call.realAttribute("alpha", 0), beta = call.realAttribute("beta", 0),
               norm = call.realAttribute("norm_coefficient", 0);
  const bool isNesterov = call.textAttribute("mode", "standard") == "nesterov";
  if (call.isRefused())
    return;
  const Scalar fresh =
      select(optimizer.step > 0, optimizer.rate.real(beta), optimizer.rate.real(1));
  for (unsigned k = 0; k < optimizer.count; ++k) {
    const Tensor x = itemOf(call, optimizer, 0, k), g = itemOf(call, optimizer, 1, k);
    const Tensor velocity =
        call.elementwise({x, g, itemOf(call, optimizer, 2, k)}, x.type(),
                         [=](auto e) { return e[2] * alpha + (e[1] + e[0] * norm) * fresh; });
    call.result(k, call.elementwise({x, g, velocity}, x.type(), [=](auto e) {
      const Scalar step = isNesterov ? e[1] + e[0] * norm + e[2] * alpha : e[2];
      return e[0] - step * optimizer.rate;
    }));
    call.result(k + optimizer.count, velocity);
  }
}
void defineAdam(Call& call) {
  const Optimizer optimizer = optimizerOf(call, 2);
  const double alpha = call.realAttribute("alpha", 0.9), beta = call.realAttribute("beta", 0.999),
               epsilon = call.realAttribute("epsilon", 1e-6),
               norm = call.realAttribute("norm_coefficient", 0),
               after = call.realAttribute("norm_coefficient_post", 0);
  if (call.isRefused())
    return;
  auto bias = [&](double base) {
    return 1.0 - apply(Function::Power, optimizer.rate.real(base), toReal(optimizer.step));
  };
  const Scalar rate = select(optimizer.step > 0,
                             optimizer.rate * apply(Function::SquareRoot, bias(beta)) / bias(alpha),
                             optimizer.rate);
  for (unsigned k = 0; k < optimizer.count; ++k) {
    const Tensor x = itemOf(call, optimizer, 0, k), g = itemOf(call, optimizer, 1, k);
    auto state = [&](unsigned list, double keep, bool isSquare) {
      return call.elementwise({x, g, itemOf(call, optimizer, list, k)}, x.type(), [=](auto e) {
        const Scalar gradient = e[1] + e[0] * norm;
        return e[2] * keep + (isSquare ? gradient * gradient : gradient) * (1 - keep);
      });
    };
    const Tensor first = state(2, alpha, false), second = state(3, beta, true);
    call.result(k, call.elementwise({x, first, second}, x.type(), [=](auto e) {
      const Scalar moved = e[0] - e[1] * rate / (apply(Function::SquareRoot, e[2]) + epsilon);
      return moved * (1 - after);
    }));
    call.result(k + optimizer.count, first);
    call.result(k + 2 * optimizer.count, second);
  }
}

} // namespace

void register_signal(Definitions& all) {
  all.add("HannWindow", defineHann, 17);
  all.add("HammingWindow", defineHamming, 17);
  all.add("BlackmanWindow", defineBlackman, 17);
  all.add("DFT", defineDft, 17);
  all.add("STFT", defineStft, 17);
  all.add("ai.onnx.preview.training::Adagrad", defineAdagrad);
  all.add("ai.onnx.preview.training::Momentum", defineMomentum);
  all.add("ai.onnx.preview.training::Adam", defineAdam);
}

} // namespace kvopt::meaning
