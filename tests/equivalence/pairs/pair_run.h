// Runs of a random pair of models in the steps of a checker's scope.
#pragma once

#include "check/caches/feeding.h"
#include "tests/equivalence/rules/compared_run.h"

#include <cmath>

namespace kvopt::pairs {

/// Both models of a pair, and what is fed to them.
class PairRun {
public:
  /// Views of the tensors that are held.
  struct Inputs {
    std::vector<runtime::Tensor> held;
    std::vector<runtime::NamedView> views;
  };

  PairRun(const ir::Model& before, const ir::Model& after, const ir::Manifest& manifest,
          const driver::Toolkit& toolkit)
      : first(before), feeding({before, manifest}, {after, manifest}), math(0) {
    runtime::ExecutorOptions options;
    options.threads = 1;
    for (auto [model, executor] : {std::pair{&before, &one}, std::pair{&after, &other}}) {
      auto made = runtime::Executor::create(*model, toolkit.runner->kernels(), options);
      if (made)
        *executor = std::move(*made);
      else
        llvm::consumeError(made.takeError());
    }
  }

  /// Whether the runtime has kernels for both.
  bool canRun() const { return one && other; }

  /// The first difference of the outputs in a step; empty if there is none, or if one of the models
  /// does not accept the step. Rounding is measured: the first model also runs on inputs that are
  /// slightly other numbers.
  std::string difference(const check::Step& step, unsigned seed) {
    const auto fed = inputs(step, seed, 0);
    auto wanted = outputs(*one, fed);
    if (wanted.empty())
      return "";
    ++runs;
    auto found = outputs(*other, fed);
    if (found.empty()) {
      ++failures;
      return "";
    }
    std::vector<runtime::Tensor> moved;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const runtime::TensorView &a = wanted[i].view, &b = found[i].view;
      if (a.element != b.element || a.shape != b.shape)
        return "another shape";
      for (int64_t at = 0; at < a.elementCount(); ++at) {
        const double x = elementOf(a, at), y = elementOf(b, at);
        if (std::isnan(x) || x == y || isNear(x, y, 1e-4))
          continue;
        if (moved.empty())
          moved = outputs(*one, inputs(step, seed, 1e-5));
        // Other numbers than these are infinite only because they are large.
        if (!moved.empty() && ir::isFloatingPoint(a.element)) {
          const double z = elementOf(moved[i].view, at);
          if (!std::isfinite(z) || std::fabs(y - x) <= 32 * std::fabs(z - x) + 1e-4)
            continue;
        }
        return "output " + std::to_string(i) + ", element " + std::to_string(at) + ": " +
               std::to_string(x) + " and " + std::to_string(y);
      }
    }
    return "";
  }

  /// Inputs of a step; nullopt if the checker has none. Real numbers are multiplied by 1 + `shift`
  /// at most.
  std::optional<Inputs> inputs(const check::Step& step, unsigned seed, double shift) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> number(-1, 1);
    Inputs made;
    for (const auto& input : first.graph().inputs()) {
      const check::Ref contents = feeding.beforeInput(*input, step, math);
      if (!contents)
        return std::nullopt;
      auto tensor =
          runtime::Tensor::create(allocator, input->type().elementType(), contents->shape);
      if (!tensor) {
        llvm::consumeError(tensor.takeError());
        return std::nullopt;
      }
      for (int64_t i = 0; i < tensor->view.elementCount(); ++i)
        if (contents->isInteger()) {
          tensor->view.as<int64_t>()[i] = contents->integers[static_cast<size_t>(i)];
        } else {
          const double value = number(random);
          tensor->view.as<float>()[i] = static_cast<float>(value * (1 + shift * number(random)));
        }
      made.views.push_back({input->name(), tensor->view});
      made.held.push_back(std::move(*tensor));
    }
    return made;
  }

  size_t runs = 0;     ///< steps that the first model accepts
  size_t failures = 0; ///< those of them that the second one does not accept
  std::string failure; ///< why a model did not accept the last of them

private:
  static bool isNear(double x, double y, double tolerance) {
    return std::fabs(x - y) <= tolerance * std::max(1.0, std::fabs(x));
  }

  /// Outputs of one model; none if it fails.
  std::vector<runtime::Tensor> outputs(runtime::Executor& executor,
                                       const std::optional<Inputs>& fed) {
    if (!fed)
      return {};
    auto outputs = executor.run(fed->views);
    if (outputs)
      return std::move(*outputs);
    failure = takeDiagnostic(outputs.takeError()).message;
    return {};
  }

  const ir::Model& first;
  check::Feeding feeding;
  check::Arithmetic math;
  std::shared_ptr<runtime::Allocator> allocator = std::make_shared<runtime::Allocator>();
  std::unique_ptr<runtime::Executor> one, other;
};

} // namespace kvopt::pairs
