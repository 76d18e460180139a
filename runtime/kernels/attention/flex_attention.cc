// ai.onnx.preview::FlexAttention (version 1): attention with functions that modify its scores and
// probabilities, given as subgraphs with one input and one output:
//
//   Y = prob_mod(softmax(score_mod(scale * Q K^T))) V
//
// Q is [B,H,S,D], K [B,G,T,D], V [B,G,T,Dv], Y [B,H,S,Dv]; query head h reads group h / (H/G).
// Scores and probabilities are [B,H,S,T] of type softmax_precision, by default float, or double for
// double operands. scale defaults to 1 / sqrt(D). Products and the softmax are computed in f32, or
// in double if operands or scores are double. As in ONNX, the softmax of a row of -inf is NaN.
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/memory/buffer.h"

#include <algorithm>
#include <cmath>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

struct FlexSizes {
  int64_t batches = 0, heads = 0, groups = 0, rows = 0, keys = 0, width = 0, valueWidth = 0;

  Extents scores() const { return {batches, heads, rows, keys}; }
};

llvm::Expected<FlexSizes> flexSizesOf(const KernelContext& context) {
  const TensorView& q = context.in(0);
  const TensorView& k = context.in(1);
  const TensorView& v = context.in(2);
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4)
    return context.error("query, key and value must have rank 4");
  if (q.element != k.element || q.element != v.element)
    return context.error("query, key and value are of different element types");
  if (q.shape[0] != k.shape[0] || q.shape[0] != v.shape[0] || k.shape[1] != v.shape[1] ||
      k.shape[2] != v.shape[2] || q.shape[3] != k.shape[3])
    return context.error("the extents of query, key and value do not fit together");
  const FlexSizes sizes{q.shape[0], q.shape[1], k.shape[1], q.shape[2],
                        k.shape[2], q.shape[3], v.shape[3]};
  if (sizes.groups == 0 ? sizes.heads != 0 : sizes.heads % sizes.groups != 0)
    return context.error(formatted("{} query heads are not a multiple of {} key/value heads",
                                   sizes.heads, sizes.groups));
  if (sizes.width == 0)
    return context.error("a head width of 0 is not supported");
  return sizes;
}

llvm::Expected<ElementType> precisionOf(const KernelContext& context) {
  const bool isDouble = context.in(0).element == ElementType::Double;
  const auto otherwise = static_cast<int64_t>(isDouble ? ElementType::Double : ElementType::Float);
  const int64_t asked = context.node().intAttr("softmax_precision", otherwise);
  for (ElementType element :
       {ElementType::Float, ElementType::Float16, ElementType::BFloat16, ElementType::Double})
    if (asked == static_cast<int64_t>(element))
      return element;
  return context.error(formatted("softmax_precision = {} is not supported", asked));
}

/// Attention in the arithmetic of type A, for tensors of any floating-point type.
template <class A> class FlexAttention {
public:
  FlexAttention(KernelContext& kernelContext, const FlexSizes& given, ElementType scores)
      : context(kernelContext), sizes(given), precision(scores) {}

  llvm::Error run() {
    auto y = context.output(0, context.in(0).element,
                            {sizes.batches, sizes.heads, sizes.rows, sizes.valueWidth});
    if (!y)
      return y.takeError();
    auto scores = computeScores();
    if (!scores)
      return scores.takeError();
    if (llvm::Error error = modify("score_mod", *scores))
      return error;
    if (llvm::Error error = replaceBySoftmax(*scores))
      return error;
    if (llvm::Error error = modify("prob_mod", *scores))
      return error;
    return weightValues(scores->view, *y);
  }

private:
  /// The elements as numbers of type A; the tensor's own memory if it has this type.
  llvm::Expected<const A*> numbersOf(const TensorView& tensor) {
    if (tensor.element == elementOf<A>())
      return tensor.as<A>();
    auto memory = working(tensor.elementCount());
    if (!memory)
      return memory.takeError();
    A* numbers = *memory;
    llvm::Error error =
        dispatch(FloatTypes(), context, tensor.element, [&](auto tag) -> llvm::Error {
          using T = typename decltype(tag)::Type;
          for (int64_t i = 0; i < tensor.elementCount(); ++i)
            numbers[i] = static_cast<A>(load(tensor.as<T>()[i]));
          return llvm::Error::success();
        });
    if (error)
      return error;
    return numbers;
  }

  /// Memory in which to compute the elements of a tensor; `storeAll` completes them.
  llvm::Expected<A*> resultOf(const TensorView& tensor) {
    if (tensor.element == elementOf<A>())
      return tensor.as<A>();
    return working(tensor.elementCount());
  }

  llvm::Error storeAll(const A* numbers, const TensorView& tensor) {
    if (tensor.element == elementOf<A>())
      return llvm::Error::success();
    return dispatch(FloatTypes(), context, tensor.element, [&](auto tag) -> llvm::Error {
      using T = typename decltype(tag)::Type;
      for (int64_t i = 0; i < tensor.elementCount(); ++i)
        tensor.as<T>()[i] = store<T>(static_cast<ArithmeticType<T>>(numbers[i]));
      return llvm::Error::success();
    });
  }

  llvm::Expected<A*> working(int64_t count) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<size_t>(count), sizeof(A), &bytes))
      return context.error("a working copy does not fit in the address space");
    auto memory = context.scratch(bytes);
    if (!memory)
      return memory.takeError();
    return reinterpret_cast<A*>(memory->data());
  }

  int64_t rowCount(const TensorView& tensor) const {
    return tensor.elementCount() == 0 ? 0 : sizes.batches * sizes.heads * sizes.rows;
  }
  /// Offset of the matrix that a query row reads; each matrix has `length` elements.
  int64_t matrixOf(int64_t row, int64_t length) const {
    const int64_t head = row / sizes.rows;
    const int64_t group = head % sizes.heads / (sizes.heads / sizes.groups);
    return (head / sizes.heads * sizes.groups + group) * length;
  }

  llvm::Expected<Tensor> computeScores() {
    auto scores = context.temporary(precision, sizes.scores());
    if (!scores)
      return scores;
    auto q = numbersOf(context.in(0));
    if (!q)
      return q.takeError();
    auto k = numbersOf(context.in(1));
    if (!k)
      return k.takeError();
    auto s = resultOf(scores->view);
    if (!s)
      return s.takeError();
    const A scale = context.node().attribute("scale")
                        ? static_cast<A>(context.node().floatAttr("scale", 1.0f))
                        : 1 / std::sqrt(static_cast<A>(sizes.width));
    context.parallelFor(rowCount(scores->view), [&](int64_t row) {
      const A* query = *q + row * sizes.width;
      const A* key = *k + matrixOf(row, sizes.keys * sizes.width);
      for (int64_t j = 0; j < sizes.keys; ++j, key += sizes.width) {
        A sum = 0;
        for (int64_t d = 0; d < sizes.width; ++d)
          sum += query[d] * key[d];
        (*s)[row * sizes.keys + j] = scale * sum;
      }
    });
    if (llvm::Error error = storeAll(*s, scores->view))
      return error;
    return scores;
  }

  /// Replaces the tensor by the result of the subgraph, if there is one.
  llvm::Error modify(const char* name, Tensor& tensor) {
    if (!context.node().attribute(name))
      return llvm::Error::success();
    std::vector<Tensor> inputs;
    inputs.push_back(std::move(tensor));
    auto outputs = context.runBody(name, std::move(inputs));
    if (!outputs)
      return outputs.takeError();
    if (outputs->size() != 1 || outputs->front().view.element != precision ||
        outputs->front().view.shape != sizes.scores())
      return context.error(
          formatted("{} does not return one tensor of its input's type and shape", name));
    tensor = std::move(outputs->front());
    if (tensor.view.isContiguous())
      return llvm::Error::success();
    auto packed = context.temporary(precision, sizes.scores());
    if (!packed)
      return packed.takeError();
    copyElements(tensor.view, packed->view);
    tensor = std::move(*packed);
    return llvm::Error::success();
  }

  llvm::Error replaceBySoftmax(Tensor& tensor) {
    // The subgraph may have returned a constant.
    auto result = context.temporary(precision, sizes.scores());
    if (!result)
      return result.takeError();
    auto scores = numbersOf(tensor.view);
    if (!scores)
      return scores.takeError();
    auto weights = resultOf(result->view);
    if (!weights)
      return weights.takeError();
    context.parallelFor(rowCount(tensor.view), [&](int64_t row) {
      const A* from = *scores + row * sizes.keys;
      A* to = *weights + row * sizes.keys;
      const A largest = *std::max_element(from, from + sizes.keys);
      A sum = 0;
      for (int64_t j = 0; j < sizes.keys; ++j)
        sum += to[j] = std::exp(from[j] - largest);
      for (int64_t j = 0; j < sizes.keys; ++j)
        to[j] /= sum;
    });
    if (llvm::Error error = storeAll(*weights, result->view))
      return error;
    tensor = std::move(*result);
    return llvm::Error::success();
  }

  llvm::Error weightValues(const TensorView& probabilities, const TensorView& output) {
    auto p = numbersOf(probabilities);
    if (!p)
      return p.takeError();
    auto v = numbersOf(context.in(2));
    if (!v)
      return v.takeError();
    auto y = resultOf(output);
    if (!y)
      return y.takeError();
    context.parallelFor(rowCount(output), [&](int64_t row) {
      A* to = *y + row * sizes.valueWidth;
      std::fill_n(to, sizes.valueWidth, A(0));
      const A* value = *v + matrixOf(row, sizes.keys * sizes.valueWidth);
      for (int64_t j = 0; j < sizes.keys; ++j, value += sizes.valueWidth)
        for (int64_t d = 0; d < sizes.valueWidth; ++d)
          to[d] += (*p)[row * sizes.keys + j] * value[d];
    });
    return storeAll(*y, output);
  }

  KernelContext& context;
  const FlexSizes sizes;
  const ElementType precision;
};

llvm::Error flexAttention(KernelContext& context) {
  auto sizes = flexSizesOf(context);
  if (!sizes)
    return sizes.takeError();
  auto precision = precisionOf(context);
  if (!precision)
    return precision.takeError();
  if (*precision == ElementType::Double || context.in(0).element == ElementType::Double)
    return FlexAttention<double>(context, *sizes, *precision).run();
  return FlexAttention<float>(context, *sizes, *precision).run();
}

} // namespace

void register_flex_attention(KernelRegistry& registry) {
  registry.add("ai.onnx.preview::FlexAttention", 1, flexAttention);
}

} // namespace kvopt::kernels
