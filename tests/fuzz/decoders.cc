// Generated decoders, rewritten for several targets.
#include "tests/fuzz/decoders.h"

#include "driver/generate/generation.h"
#include "driver/synthetic/decoder.h"
#include "ir/shapes/shape_inference.h"
#include "tests/fuzz/exercise.h"

namespace kvopt::fuzz {
using namespace driver;
using namespace passes;
using namespace ir;
using namespace runtime;
namespace {

struct Form {
  const char* name;
  DecoderKind kind;
  const char* target;
};

constexpr Form forms[] = {
    {"growing", DecoderKind::Llama, "to=primitive"},
    {"shared", DecoderKind::Llama, "to=kvopt capacity=16"},
    {"int8", DecoderKind::Llama, "to=int8 capacity=16"},
    {"blocks", DecoderKind::Llama, "to=blocks:4 capacity=16"},
    {"int8-blocks", DecoderKind::Llama, "to=int8-blocks:4 capacity=16"},
    {"packed", DecoderKind::PackedQkv, "to=onnx24 capacity=16"},
    {"latent", DecoderKind::MlaLatent, "to=kvopt capacity=16"},
    {"states", DecoderKind::Hybrid, "to=kvopt capacity=16"},
    {"ring", DecoderKind::Window, "to=ring"},
    {"int8-ring", DecoderKind::Window, "to=int8-ring"},
    {"circular", DecoderKind::Window, "to=onnx24-ring:4"},
};

template <class T> T must(llvm::Expected<T> value, const char* what) {
  if (!value)
    mustHold(value.takeError(), what);
  return std::move(*value);
}

DecoderSpec specOf(DecoderKind kind) {
  DecoderSpec spec;
  spec.kind = kind;
  if (kind == DecoderKind::Hybrid)
    spec.spelling = DecoderSpelling::GroupQueryAttention;
  spec.hidden = 16;
  spec.heads = 2;
  spec.kvHeads = kind == DecoderKind::Llama || kind == DecoderKind::Hybrid ? 1 : 0;
  spec.window = kind == DecoderKind::Window ? 4 : 0;
  spec.intermediate = 16;
  spec.vocabulary = 16;
  spec.maxPositions = 64;
  return must(resolved(spec), "the description of a decoder");
}

Decoder rewritten(const Form& form) {
  // Weights are computed when they are read: written and read again, they are bytes.
  std::unique_ptr<Model> model = copyOf(*generateDecoder(toolkit().ops, specOf(form.kind)));
  PassContext context(toolkit().rules, toolkit().targets);
  PassManager manager(toolkit().passes, {});
  const std::string pipeline =
      formatted("{},lower{{{}}},eliminate-dead-nodes", recoveryPipeline, form.target);
  mustHold(manager.addPipeline(pipeline), form.name);
  mustHold(manager.run(*model, context), form.name);
  if (!context.manifest)
    mustHold(invalid("nothing was rewritten"), form.name);
  model = copyOf(*model);
  mustHold(inferShapes(model->graph()), form.name);
  return {form.name, std::move(model), *context.manifest};
}

} // namespace

std::unique_ptr<Model> copyOf(const Model& model) {
  ExportOptions options;
  options.reserialize = true;
  const std::string bytes = must(exportModelBytes(model, options), "a copy");
  return must(importModelBytes(asBytes(bytes), "", toolkit().ops), "a copy");
}

const std::vector<Decoder>& decoders() {
  static const std::vector<Decoder> all = [] {
    std::vector<Decoder> made;
    for (const Form& form : forms)
      made.push_back(rewritten(form));
    return made;
  }();
  return all;
}

const KernelRegistry& kernels() {
  struct Kernels : KernelRegistry {
    Kernels() { registerAll(*this); }
  };
  static const Kernels all;
  return all;
}

SessionOptions smallSession(const Manifest& manifest) {
  SessionOptions options;
  options.threads = 1;
  options.capacity = manifest.capacityValue ? 0 : 16;
  options.allocator = std::make_shared<LimitedAllocator>(size_t{4} << 20);
  return options;
}

void takeSteps(Session& session) {
  GenerationOptions options;
  options.steps = 2;
  auto generated = generate(session, {{1}}, options);
  if (!generated)
    refused(generated.takeError());
}

} // namespace kvopt::fuzz
