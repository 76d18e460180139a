// Real exports with one thing changed that kvopt must not overlook: the target refuses each with
// its reason, and what normalization did to it does not change one bit.
#pragma once

#include "tests/equivalence/caches/mutated_decoder.h"

#include "passes/pass_manager.h"
#include "runtime/exec/executor.h"
#include "tests/support/temporary_folder.h"

#include <functional>
#include <map>

namespace kvopt {

struct Mutation {
  std::string name;
  const char* model; ///< folder under models/
  std::function<void(MutatedDecoder&)> mutate;
  const char* reason; ///< the code that one of the sites is refused with
};

inline void PrintTo(const Mutation& mutation, std::ostream* out) { *out << mutation.name; }

using Point = std::map<std::string, int64_t>;

/// Random contents for every input: integers are 0 or 1, which any vocabulary, mask and position
/// table takes.
inline std::vector<runtime::Tensor>
randomInputs(const ir::Model& model, const Point& point,
             const std::shared_ptr<runtime::Allocator>& allocator) {
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal;
  std::vector<runtime::Tensor> tensors;
  for (const std::unique_ptr<ir::Value>& input : model.graph().inputs()) {
    runtime::Extents shape;
    for (const ir::Dim& extent : input->type().shape())
      shape.push_back(*extent.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
        auto found = point.find(symbol.str());
        return found == point.end() ? std::optional<int64_t>() : found->second;
      }));
    tensors.push_back(
        valueOrThrow(runtime::Tensor::create(allocator, input->type().elementType(), shape)));
    const runtime::TensorView& view = tensors.back().view;
    for (int64_t i = 0; i < view.elementCount(); ++i) {
      if (view.element == ir::ElementType::Float)
        view.as<float>()[i] = normal(random);
      else
        view.as<int64_t>()[i] = static_cast<int64_t>(random() % 2);
    }
  }
  return tensors;
}

inline std::vector<std::string> outputsAt(const ir::Model& model, const Point& point,
                                          const driver::Toolkit& toolkit) {
  auto executor = valueOrThrow(runtime::Executor::create(model, toolkit.runner->kernels()));
  std::vector<runtime::Tensor> inputs = randomInputs(model, point, executor->allocator());
  std::vector<runtime::NamedView> views;
  for (size_t i = 0; i < inputs.size(); ++i)
    views.push_back({model.graph().inputs()[i]->name(), inputs[i].view});
  std::vector<std::string> outputs;
  for (const runtime::Tensor& tensor : valueOrThrow(executor->run(views))) {
    const runtime::TensorView& view = tensor.view;
    outputs.emplace_back(reinterpret_cast<const char*>(view.data),
                         static_cast<size_t>(view.byteSize()));
  }
  return outputs;
}

class NearMissTest : public testing::TestWithParam<Mutation> {
protected:
  void expectRefusedAndLeftAsItWas() {
    MutatedDecoder decoder(modelFolder(GetParam().model) + "/model.onnx", toolkit);
    GetParam().mutate(decoder);
    std::string path = write(*decoder.model);

    pattern::NearMissList misses = driver::listenToRaising(toolkit);
    driver::RecoveryOptions options;
    options.nearMisses = &misses;
    driver::RecoveredModel recovered = valueOrThrow(driver::recoverModel(path, toolkit, options));
    const targets::Target& target = *toolkit.targets.find("kvopt");
    std::vector<std::string> reasons;
    for (const analysis::AttentionSite& site : recovered.context->sites)
      if (std::optional<pattern::MatchFailure> failure = target.supports(site, *recovered.model)) {
        reasons.push_back(pattern::reasonName(failure->code).str());
        EXPECT_FALSE(failure->node.empty());
        EXPECT_FALSE(failure->expected.empty());
        EXPECT_FALSE(failure->found.empty());
      }
    EXPECT_EQ(recovered.context->sites.size(), decoder.attentions.size());
    EXPECT_TRUE(llvm::is_contained(reasons, GetParam().reason))
        << "expected " << GetParam().reason << ", got "
        << (reasons.empty() ? "no refusal" : reasons.front());

    auto original = valueOrThrow(ir::importModel(path, toolkit.ops));
    successOrThrow(ir::inferShapes(original->graph()));
    auto normalised = valueOrThrow(ir::importModel(path, toolkit.ops));
    passes::PassContext context(toolkit.rules, toolkit.targets);
    passes::PassManager manager(toolkit.passes, {});
    successOrThrow(manager.addPipeline("infer-shapes,normalize,eliminate-dead-nodes"));
    successOrThrow(manager.run(*normalised, context));
    for (const Point& point : {Point{{"batch_size", 2},
                                     {"sequence_length", 3},
                                     {"past_sequence_length", 4},
                                     {"total_sequence_length", 7},
                                     {"other_length", 4}},
                               Point{{"batch_size", 1},
                                     {"sequence_length", 5},
                                     {"past_sequence_length", 0},
                                     {"total_sequence_length", 5},
                                     {"other_length", 0}}}) {
      EXPECT_EQ(outputsAt(*original, point, toolkit), outputsAt(*normalised, point, toolkit));
    }
  }

  std::string write(const ir::Model& model) {
    std::string path = folder.path("mutated.onnx");
    successOrThrow(ir::exportModel(model, path));
    return path;
  }

  TemporaryFolder folder;
  driver::Toolkit toolkit;
};

inline std::string nearMissName(const testing::TestParamInfo<Mutation>& parameter) {
  return parameter.param.name;
}

} // namespace kvopt
