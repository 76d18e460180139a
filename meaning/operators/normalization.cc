// Normalizations: differences to a mean, divided by a root of a mean square.
#include "meaning/definitions.h"
#include "meaning/operators/reductions.h"

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;

llvm::SmallVector<unsigned> axesFrom(unsigned first, const Tensor& data) {
  llvm::SmallVector<unsigned> all;
  for (unsigned axis = first; axis < data.rank(); ++axis)
    all.push_back(axis);
  return all;
}

Scalar inverseRoot(Scalar variance, double epsilon) {
  return 1.0 / apply(Function::SquareRoot, variance + epsilon);
}

/// A vector along axis 1 of data.
Tensor alongChannels(const Tensor& vector, const Tensor& data) {
  Scalars extents(data.rank(), vector.extent(0).integer(1));
  if (data.rank() > 1)
    extents[1] = vector.extent(0);
  return Tensor(extents, vector.type(), [=](Index index) { return vector.at({index[1]}); });
}

/// The result has the operand's extents: what scales it is broadcast to it.
void resultLike(Call& call, const Tensor& data, const Tensor& all) {
  if (all.rank() != data.rank())
    return call.reject("the scale has more axes than the operand");
  call.result(
      Tensor(listed(data.extents()), all.type(), [=](Index index) { return all.at(index); }));
}

/// scale * (x - mean) / sqrt(variance + epsilon) + bias over the axes from `first` on; results 1
/// and 2 are the mean and the inverse root.
void layerNormalization(Call& call, const Tensor& data, unsigned first, const Tensor& scale,
                        const Tensor& bias) {
  const Type type = scale.type(), stash = call.typeAttribute("stash_type", Type::Float);
  const double epsilon = call.realAttribute("epsilon", 1e-5);
  const Moments moments = momentsOf(call, data, axesFrom(first, data));
  const Tensor inverse = call.named(call.elementwise(
      {moments.variance}, stash, [=](auto x) { return inverseRoot(x[0], epsilon); }));
  const Tensor normal = call.elementwise({moments.difference, inverse, scale}, type,
                                         [](auto x) { return x[0] * x[1] * x[2]; });
  const Tensor all =
      bias ? call.elementwise({normal, bias}, type, [](auto x) { return x[0] + x[1]; }) : normal;
  resultLike(call, data, all);
  call.result(1, call.elementwise({moments.mean}, stash, [](auto x) { return x[0]; }));
  call.result(2, inverse);
}
/// scale * x / sqrt(mean(x^2) + epsilon). Result `statistics` is the inverse root.
void rootNormalization(Call& call, const Tensor& data, unsigned first, const Tensor& scale,
                       unsigned statistics = 1) {
  const Type type = scale.type(), stash = call.typeAttribute("stash_type", Type::Float);
  const double epsilon = call.realAttribute("epsilon", 1e-5);
  const Tensor inverse = call.named(reduced(
      data, axesFrom(first, data), true, Reduction::Sum, [](Scalar x) { return x * x; },
      [=](Scalar all, Scalar count) { return inverseRoot(all / toReal(count), epsilon); }, stash));
  resultLike(call, data, call.elementwise({data, inverse, scale}, type, [](auto x) {
    return x[0] * x[1] * x[2];
  }));
  call.result(statistics, inverse);
}
void defineLayerNormalization(Call& call) {
  const unsigned first = call.axisAttribute("axis", -1, call[0].rank());
  if (!call.isRefused())
    layerNormalization(call, call[0], first, call[1], call.has(2) ? call[2] : Tensor());
}
void defineRmsNormalization(Call& call) {
  const unsigned first = call.axisAttribute("axis", -1, call[0].rank());
  if (!call.isRefused())
    rootNormalization(call, call[0], first, call[1]);
}
/// Of a sum of two and, if there is one, of a bias; the last result is the sum.
void defineSkipNormalization(Call& call) {
  const bool isSimple = call.node().op().type() == "SkipSimplifiedLayerNormalization";
  const unsigned biasOperand = isSimple ? 3 : 4;
  std::vector<Tensor> parts = {call[0], call[1]};
  if (call.has(biasOperand))
    parts.push_back(call[biasOperand]);
  const Tensor all = call.elementwise(parts, call[0].type(), [](auto x) {
    return x.size() > 2 ? x[0] + x[1] + x[2] : x[0] + x[1];
  });
  // The others are broadcast to the operand.
  const Tensor sums = call.named(
      Tensor(listed(call[0].extents()), all.type(), [=](Index index) { return all.at(index); }));
  if (sums.rank() == 0 || sums.rank() != call[0].rank())
    return call.reject("the sum has other axes than the operand");
  if (isSimple)
    rootNormalization(call, sums, sums.rank() - 1, call[2], 2);
  else
    layerNormalization(call, sums, sums.rank() - 1, call[2], call.has(3) ? call[3] : Tensor());
  call.result(3, sums);
}

Tensor normalized(Call& call, const Tensor& data, llvm::ArrayRef<unsigned> axes, double epsilon) {
  const Moments moments = momentsOf(call, data, axes);
  return call.elementwise({moments.difference, moments.variance}, data.type(),
                          [=](auto x) { return x[0] * inverseRoot(x[1], epsilon); });
}
Tensor scaledAndMoved(Call& call, const Tensor& data, const Tensor& scale, const Tensor& bias) {
  return call.elementwise({data, scale, bias}, data.type(),
                          [](auto x) { return x[0] * x[1] + x[2]; });
}
void defineInstanceNormalization(Call& call) {
  const Tensor data = call[0];
  if (data.rank() < 2)
    return call.reject("the operand has no channels");
  const Tensor normal =
      normalized(call, data, axesFrom(2, data), call.realAttribute("epsilon", 1e-5));
  call.result(
      scaledAndMoved(call, normal, alongChannels(call[1], data), alongChannels(call[2], data)));
}
/// Scale and bias are one for each group before version 21, and for each channel from then on.
void defineGroupNormalization(Call& call) {
  call.ignoreAttributes({"stash_type"});
  const Tensor data = call[0];
  const int64_t groups = call.integerAttribute("num_groups", 1);
  if (data.rank() < 2 || groups < 1)
    return call.reject("the operand has no channels, or there are no groups");
  const Scalar size = quotient(data.extent(1), groups);
  const Tensor rows = reshaped(call.formulas(), data,
                               {data.extent(0), call.integer(groups),
                                size * product(call.formulas(), data.extents().drop_front(2))});
  const Tensor normal =
      reshaped(call.formulas(), normalized(call, rows, 2, call.realAttribute("epsilon", 1e-5)),
               listed(data.extents()));
  auto perChannel = [&](const Tensor& vector) {
    if (call.opset() >= 21)
      return alongChannels(vector, data);
    return alongChannels(Tensor({data.extent(1)}, vector.type(),
                                [=](Index index) { return vector.at({quotient(index[0], size)}); }),
                         data);
  };
  call.result(scaledAndMoved(call, normal, perChannel(call[1]), perChannel(call[2])));
}
void defineMeanVarianceNormalization(Call& call) {
  llvm::SmallVector<unsigned> axes;
  for (int64_t axis : call.integersAttribute("axes").value_or(llvm::SmallVector<int64_t>{0, 2, 3}))
    axes.push_back(call.axis(axis, call[0].rank()));
  if (call.isRefused())
    return;
  const Moments moments = momentsOf(call, call[0], axes);
  call.result(call.elementwise({moments.difference, moments.variance}, call[0].type(), [](auto x) {
    return x[0] / (apply(Function::SquareRoot, x[1]) + 1e-9);
  }));
}
/// With the statistics that are given, or in training mode with those of the batch.
void defineBatchNormalization(Call& call) {
  const Tensor data = call[0];
  const double epsilon = call.realAttribute("epsilon", 1e-5),
               momentum = call.realAttribute("momentum", 0.9);
  if (data.rank() < 2)
    return call.reject("the operand has no channels");
  const Tensor scale = alongChannels(call[1], data), bias = alongChannels(call[2], data);
  if (call.integerAttribute("spatial", 1) == 0)
    return call.refuse("statistics of each place are not defined");
  if (call.integerAttribute("training_mode", 0) == 0) {
    call.result(call.elementwise(
        {data, scale, bias, alongChannels(call[3], data), alongChannels(call[4], data)},
        data.type(),
        [=](auto x) { return (x[0] - x[3]) * inverseRoot(x[4], epsilon) * x[1] + x[2]; }));
    return;
  }
  llvm::SmallVector<unsigned> axes = axesFrom(2, data);
  axes.insert(axes.begin(), 0);
  const Moments moments = momentsOf(call, data, axes);
  call.result(
      call.elementwise({moments.difference, moments.variance, scale, bias}, data.type(),
                       [=](auto x) { return x[0] * inverseRoot(x[1], epsilon) * x[2] + x[3]; }));
  auto running = [&](const Tensor& old, const Tensor& now) {
    return Tensor(listed(old.extents()), old.type(), [=, rank = data.rank()](Index index) {
      Scalars place(rank, index[0].integer(0));
      place[1] = index[0];
      return old.at(index) * momentum + now.at(place) * (1 - momentum);
    });
  };
  call.result(1, running(call[3], moments.mean));
  call.result(2, running(call[4], moments.variance));
}
void defineLpNormalization(Call& call) {
  const Tensor data = call[0];
  const unsigned axis = call.axisAttribute("axis", -1, data.rank());
  if (call.isRefused())
    return;
  const bool isSquare = call.integerAttribute("p", 2) == 2;
  const Tensor norm = call.named(reduced(
      data, axis, true, Reduction::Sum, [=](Scalar x) { return isSquare ? x * x : absolute(x); },
      [=](Scalar all, Scalar) { return isSquare ? apply(Function::SquareRoot, all) : all; }));
  call.result(call.elementwise({data, norm}, data.type(), [](auto x) {
    return select(same(x[1], 0), x[1].real(0), x[0] / x[1]);
  }));
}
/// x / (bias + alpha/size * sum of squares of the channels nearby)^beta.
void defineLrn(Call& call) {
  const Tensor data = call[0];
  const int64_t size = call.integerAttribute("size", 1);
  const double alpha = call.realAttribute("alpha", 1e-4), beta = call.realAttribute("beta", 0.75),
               bias = call.realAttribute("bias", 1);
  if (data.rank() < 2 || size < 1)
    return call.reject("the operand has no channels");
  const auto before = static_cast<double>((size - 1) / 2);
  call.result(Tensor(listed(data.extents()), data.type(), [=](Index index) {
    const Scalar squares = sum(index[1].integer(size), [&](Scalar k) {
      const Scalar channel = index[1] + k - before;
      return select(
          both(channel >= 0, channel < data.extent(1)),
          [&] {
            const Scalar x = data.at(replaced(index, 1, channel));
            return x * x;
          },
          [&] { return k.real(0); });
    });
    return data.at(index) / apply(Function::Power,
                                  squares * (alpha / static_cast<double>(size)) + bias,
                                  squares.real(beta));
  }));
}

} // namespace

void register_normalization(Definitions& all) {
  // ONNX Runtime writes it in versions before 17, too.
  all.add("LayerNormalization", defineLayerNormalization, 1);
  all.add("RMSNormalization", defineRmsNormalization, 23);
  all.add({"SimplifiedLayerNormalization", "com.microsoft::SimplifiedLayerNormalization"},
          defineRmsNormalization);
  all.add(
      {"com.microsoft::SkipLayerNormalization", "com.microsoft::SkipSimplifiedLayerNormalization"},
      defineSkipNormalization);
  all.add("InstanceNormalization", defineInstanceNormalization);
  all.add("GroupNormalization", defineGroupNormalization, 18);
  all.add("MeanVarianceNormalization", defineMeanVarianceNormalization, 9);
  all.add("BatchNormalization", defineBatchNormalization, 7);
  all.add("LpNormalization", defineLpNormalization);
  all.add("LRN", defineLrn);
}

} // namespace kvopt::meaning
