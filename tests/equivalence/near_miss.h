// Real exports with one thing changed that kvopt must not overlook: each is refused with its
// reason, nothing is written, and what normalisation did to it does not change one bit.
#pragma once

#include "tests/equivalence/mutated_decoder.h"

#include "passes/pass_manager.h"
#include "runtime/executor.h"
#include "tests/cli/cli_fixture.h"

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
inline std::vector<Tensor> randomInputs(const Model& model, const Point& point,
                                        const std::shared_ptr<Allocator>& allocator) {
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal;
  std::vector<Tensor> tensors;
  for (const std::unique_ptr<Value>& input : model.graph().inputs()) {
    Extents shape;
    for (const Dim& extent : input->type().shape())
      shape.push_back(*extent.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
        auto found = point.find(symbol.str());
        return found == point.end() ? std::optional<int64_t>() : found->second;
      }));
    tensors.push_back(valueOrThrow(Tensor::create(allocator, input->type().elementType(), shape)));
    const TensorView& view = tensors.back().view;
    for (int64_t i = 0; i < view.elementCount(); ++i) {
      if (view.element == ElementType::Float)
        view.as<float>()[i] = normal(random);
      else
        view.as<int64_t>()[i] = static_cast<int64_t>(random() % 2);
    }
  }
  return tensors;
}

inline std::vector<std::string> outputsAt(const Model& model, const Point& point,
                                          const Registries& registries) {
  auto executor = valueOrThrow(Executor::create(model, registries.kernels));
  std::vector<Tensor> inputs = randomInputs(model, point, executor->allocator());
  std::vector<NamedView> views;
  for (size_t i = 0; i < inputs.size(); ++i)
    views.push_back({model.graph().inputs()[i]->name(), inputs[i].view});
  std::vector<std::string> outputs;
  for (const Tensor& tensor : valueOrThrow(executor->run(views))) {
    const TensorView& view = tensor.view;
    outputs.emplace_back(reinterpret_cast<const char*>(view.data),
                         static_cast<size_t>(view.byteSize()));
  }
  return outputs;
}

class NearMissTest : public testing::TestWithParam<Mutation> {
protected:
  void expectRefusedAndLeftAsItWas() {
    MutatedDecoder decoder(modelFolder(GetParam().model) + "/model.onnx", registries);
    GetParam().mutate(decoder);
    std::string path = write(*decoder.model);

    NearMissList misses = listenToRaising(registries);
    RecoveryOptions options;
    options.nearMisses = &misses;
    RecoveredModel recovered = valueOrThrow(recoverModel(path, registries, options));
    const Target& target = *registries.targets.find("kvopt");
    std::vector<std::string> reasons;
    for (const AttentionSite& site : recovered.context->sites)
      if (std::optional<MatchFailure> failure = target.supports(site, *recovered.model)) {
        reasons.push_back(reasonName(failure->code).str());
        EXPECT_FALSE(failure->node.empty());
        EXPECT_FALSE(failure->expected.empty());
        EXPECT_FALSE(failure->found.empty());
      }
    EXPECT_EQ(recovered.context->sites.size(), decoder.attentions.size());
    EXPECT_TRUE(llvm::is_contained(reasons, GetParam().reason))
        << "expected " << GetParam().reason << ", got "
        << (reasons.empty() ? "no refusal" : reasons.front());

    std::string output = folder.path("out.onnx");
    ProgramResult refused = runProgram({"rewrite", path, "-o", output, "--to", "kvopt"});
    EXPECT_EQ(refused.code, 1) << refused.err;
    EXPECT_NE(refused.err.find(GetParam().reason), std::string::npos) << refused.err;
    EXPECT_FALSE(std::filesystem::exists(output));

    auto original = valueOrThrow(importModel(path, registries.ops));
    successOrThrow(inferShapes(original->graph()));
    auto normalised = valueOrThrow(importModel(path, registries.ops));
    PassContext context(registries.rules, registries.targets);
    PassManager manager(registries.passes, {});
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
      EXPECT_EQ(outputsAt(*original, point, registries), outputsAt(*normalised, point, registries));
    }
  }

  std::string write(const Model& model) {
    std::string path = folder.path("mutated.onnx");
    successOrThrow(exportModel(model, path));
    return path;
  }

  TemporaryFolder folder;
  Registries registries;
};

inline std::string nearMissName(const testing::TestParamInfo<Mutation>& parameter) {
  return parameter.param.name;
}

} // namespace kvopt
