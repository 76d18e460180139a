// Runs of a small graph before and after a rule, on random inputs.
#pragma once

#include "driver/toolkit.h"
#include "ir/model.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "support/half.h"
#include "support/string_ends.h"

#include "llvm/ADT/StringMap.h"

#include <cmath>
#include <limits>
#include <optional>
#include <random>

namespace kvopt {

/// Values of the symbols of a graph.
using SymbolValues = llvm::StringMap<int64_t>;

/// Random inputs of a graph.
struct RandomInputs {
  /// Fails for inputs whose extents are unknown or negative. `mostInteger` is the largest integer
  /// that an integer input has.
  static bool make(const ir::Graph& graph, const SymbolValues& symbols, int64_t mostInteger,
                   unsigned seed, RandomInputs& made) {
    std::mt19937 random(seed);
    for (const std::unique_ptr<ir::Value>& input : graph.inputs()) {
      if (input->initializer())
        continue;
      if (!input->type().hasRank())
        return false;
      runtime::Extents shape;
      for (const ir::Dim& dim : input->type().shape()) {
        const auto extent = dim.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
          return symbols.lookup(symbol);
        });
        if (!extent || *extent < 0)
          return false;
        shape.push_back(*extent);
      }
      auto tensor = runtime::Tensor::create(made.allocator, input->type().elementType(), shape);
      if (!tensor) {
        llvm::consumeError(tensor.takeError());
        return false;
      }
      const int64_t total = symbols.lookup("P") + symbols.lookup("S");
      if (startsWith(input->name(), "seqlens") || startsWith(input->name(), "total"))
        fillLengths(tensor->view, startsWith(input->name(), "total") ? total : total - 1);
      else if (!fill(tensor->view, input->name(), mostInteger, random))
        return false;
      made.names.push_back(input->name().str());
      made.tensors.push_back(std::move(*tensor));
    }
    return true;
  }

  std::vector<runtime::NamedView> views() const {
    std::vector<runtime::NamedView> named;
    for (size_t i = 0; i < names.size(); ++i)
      named.push_back({names[i], tensors[i].view});
    return named;
  }

  std::shared_ptr<runtime::Allocator> allocator = std::make_shared<runtime::Allocator>();
  std::vector<std::string> names;
  std::vector<runtime::Tensor> tensors;

private:
  /// Fills lengths of GroupQueryAttention: the past and the new rows, or the last of them.
  static void fillLengths(const runtime::TensorView& view, int64_t length) {
    for (int64_t i = 0; i < view.elementCount(); ++i)
      if (view.element == ir::ElementType::Int32)
        view.as<int32_t>()[i] = static_cast<int32_t>(length);
      else if (view.element == ir::ElementType::Int64)
        view.as<int64_t>()[i] = length;
  }

  /// The first key of each row is visible: attention over no key is not a number.
  /// Rounding hides the scores of a row that sees no key, for which masks have finite numbers.
  static bool fill(const runtime::TensorView& view, llvm::StringRef name, int64_t mostInteger,
                   std::mt19937& random) {
    const bool isMask = name.contains("mask") || name.contains("bias");
    const bool isLength = name.contains("lengths");
    const bool seesKeys = isMask || isLength || name.contains("padding");
    const int64_t row = view.shape.empty() ? 1 : view.shape.back();
    std::uniform_real_distribution<double> number(-1, 1);
    for (int64_t i = 0; i < view.elementCount(); ++i) {
      const bool isFirst = row == 0 || i % row == 0 || isLength;
      const bool isHidden = isMask && !isFirst && random() % 4 == 0;
      const double real = isHidden ? -std::numeric_limits<double>::infinity() : number(random);
      auto whole = static_cast<int64_t>(random() % static_cast<uint64_t>(mostInteger + 1));
      if (seesKeys && isFirst)
        whole = std::max<int64_t>(whole, 1);
      switch (view.element) {
      case ir::ElementType::Float:
        view.as<float>()[i] = static_cast<float>(real);
        break;
      case ir::ElementType::Double:
        view.as<double>()[i] = real;
        break;
      case ir::ElementType::Float16:
        view.as<uint16_t>()[i] = floatToF16(static_cast<float>(real));
        break;
      case ir::ElementType::Int64:
        view.as<int64_t>()[i] = whole;
        break;
      case ir::ElementType::Int32:
        view.as<int32_t>()[i] = static_cast<int32_t>(whole);
        break;
      case ir::ElementType::Int8:
      case ir::ElementType::UInt8:
        view.as<uint8_t>()[i] = static_cast<uint8_t>(random() % 100);
        break;
      case ir::ElementType::Bool:
        view.as<uint8_t>()[i] = isFirst || random() % 3 != 0 ? 1 : 0;
        break;
      default:
        return false;
      }
    }
    return true;
  }
};

/// Outputs of one run; nullopt, with the reason, if the model cannot be run.
inline std::optional<std::vector<runtime::Tensor>> outputsOf(const ir::Model& model,
                                                             const RandomInputs& inputs,
                                                             const driver::Toolkit& toolkit,
                                                             Diagnostic& why) {
  runtime::ExecutorOptions options;
  options.threads = 1;
  auto executor = runtime::Executor::create(model, toolkit.runner->kernels(), options);
  if (!executor) {
    why = takeDiagnostic(executor.takeError());
    return std::nullopt;
  }
  auto outputs = (*executor)->run(inputs.views());
  if (!outputs) {
    why = takeDiagnostic(outputs.takeError());
    return std::nullopt;
  }
  return std::move(*outputs);
}

/// Element of an output as a number.
inline double elementOf(const runtime::TensorView& view, int64_t index) {
  switch (view.element) {
  case ir::ElementType::Float:
    return static_cast<double>(view.as<float>()[index]);
  case ir::ElementType::Double:
    return view.as<double>()[index];
  case ir::ElementType::Float16:
    return static_cast<double>(f16ToFloat(view.as<uint16_t>()[index]));
  case ir::ElementType::Int64:
    return static_cast<double>(view.as<int64_t>()[index]);
  case ir::ElementType::Int32:
    return view.as<int32_t>()[index];
  case ir::ElementType::BFloat16:
    return static_cast<double>(bf16ToFloat(view.as<uint16_t>()[index]));
  case ir::ElementType::Int8:
  case ir::ElementType::Int4:
    return view.as<int8_t>()[index];
  default:
    // Bools and unsigned integers.
    switch (*runtime::memoryWidth(view.element)) {
    case 1:
      return view.as<uint8_t>()[index];
    case 2:
      return view.as<uint16_t>()[index];
    case 4:
      return view.as<uint32_t>()[index];
    default:
      return static_cast<double>(view.as<uint64_t>()[index]);
    }
  }
}

/// Rounding of one operation relative to its result; 0 for integers.
inline double roundingOf(ir::ElementType type) {
  switch (type) {
  case ir::ElementType::Float:
    return std::numeric_limits<float>::epsilon();
  case ir::ElementType::Double:
    // Some kernels compute in float32.
    return std::numeric_limits<float>::epsilon();
  case ir::ElementType::Float16:
    return 1.0 / 1024;
  case ir::ElementType::BFloat16:
    return 1.0 / 128;
  default:
    return 0;
  }
}

/// Bound of the difference of two orders of one sum of `terms` products of numbers of size `size`,
/// which a few more operations read: each addition and product rounds once.
inline double sumTolerance(ir::ElementType type, double terms, double size) {
  constexpr double otherOperations = 16;
  return roundingOf(type) * (terms + otherOperations) * std::max(size, 1.0);
}

/// The first difference of two outputs as text; empty if they are equal within the tolerance.
/// `hasNan` is set if `before` has an element that is not a number; those are not compared.
inline std::string differenceOf(const runtime::TensorView& before, const runtime::TensorView& after,
                                double terms, bool& hasNan) {
  if (before.element != after.element)
    return "another element type";
  if (before.shape != after.shape)
    return "other extents";
  double size = 0;
  for (int64_t i = 0; i < before.elementCount(); ++i)
    if (const double number = std::fabs(elementOf(before, i)); std::isfinite(number))
      size = std::max(size, number);
  const double tolerance = sumTolerance(before.element, terms, size);
  for (int64_t i = 0; i < before.elementCount(); ++i) {
    const double a = elementOf(before, i);
    const double b = elementOf(after, i);
    hasNan |= std::isnan(a);
    if (std::isnan(a) || a == b || std::fabs(a - b) <= tolerance)
      continue;
    return "element " + std::to_string(i) + " is " + std::to_string(b) + " instead of " +
           std::to_string(a);
  }
  return "";
}

} // namespace kvopt
