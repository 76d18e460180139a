// Comparison of outputs with those of the original model.
#include "driver/verify/deviation.h"

#include "runtime/equivalence/comparison.h"
#include "runtime/session/token_choice.h"
#include "support/half.h"

#include <cmath>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

/// Calls body(element) for the elements of a view of float, float16 or bfloat16.
template <class Body> void forEachNumber(const TensorView& view, Body body) {
  Extents index(view.rank(), 0);
  for (int64_t left = view.elementCount(); left > 0; --left) {
    int64_t offset = 0;
    for (unsigned axis = 0; axis < view.rank(); ++axis)
      offset += index[axis] * view.strides[axis];
    if (view.element == ElementType::Float)
      body(double{view.as<float>()[offset]});
    else if (view.element == ElementType::Float16)
      body(double{f16ToFloat(view.as<uint16_t>()[offset])});
    else if (view.element == ElementType::BFloat16)
      body(double{bf16ToFloat(view.as<uint16_t>()[offset])});
    for (unsigned axis = view.rank(); axis-- > 0 && ++index[axis] == view.shape[axis];)
      index[axis] = 0;
  }
}

/// Counts the most likely tokens, and those on which both models agree.
void countTokens(const StepResult& original, const StepResult& other, int64_t rows,
                 Deviation& counted) {
  auto ours = findLogits(original);
  // The name of the original's output identifies the scores; other outputs are results of
  // attention.
  if (!ours)
    return llvm::consumeError(ours.takeError());
  const Tensor* theirs = nullptr;
  for (const NamedTensor& output : original.outputs)
    if (&output.tensor == *ours)
      theirs = other.find(output.name);
  for (int64_t row = 0; theirs && row < rows; ++row) {
    auto one = greedyToken(**ours, row);
    auto another = greedyToken(*theirs, row);
    ++counted.tokens;
    if (one && another && *one == *another)
      ++counted.tokensAlike;
    llvm::consumeError(one.takeError());
    llvm::consumeError(another.takeError());
  }
}

} // namespace

double largestMagnitude(const TensorView& view) {
  double largest = 0;
  forEachNumber(view, [&](double x) {
    if (std::isfinite(x))
      largest = std::max(largest, std::fabs(x));
  });
  return largest;
}

llvm::Error Deviation::add(const StepResult& original, const StepResult& other, int64_t rows) {
  for (const NamedTensor& ours : original.outputs) {
    const Tensor* theirs = other.find(ours.name);
    if (!theirs)
      continue;
    auto compared = compareTensors(theirs->view, ours.tensor.view);
    if (!compared)
      return compared.takeError();
    largest = std::max(largest, compared->maxAbs);
    magnitude = std::max(magnitude, largestMagnitude(ours.tensor.view));
  }
  countTokens(original, other, rows, *this);
  return llvm::Error::success();
}

} // namespace kvopt::driver
