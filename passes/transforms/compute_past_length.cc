// Computes the number of earlier tokens from the extents of inputs, for engines that do not feed
// it.
//
//   before   past_length: int64[1] is an input
//   after    past_length = Shape(attention_mask)[1] - Shape(input_ids)[1]
//
// Some input must have an extent of P + S for P earlier and S new tokens, and some input one of S.
// A model without such inputs does not change.
#include "ir/manifest/manifest.h"
#include "passes/builders/attention_builder.h"
#include "passes/pass.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::transforms {
using namespace builders;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* computePastLengthName = "compute-past-length";

/// An axis of an input.
struct InputExtent {
  Value* input;
  int64_t axis;
};

/// Extents of all inputs that are neither caches nor lengths.
std::vector<InputExtent> fedExtents(const Graph& graph, const Manifest& manifest) {
  llvm::StringSet<> others;
  for (const ManifestCache& cache : manifest.caches)
    others.insert(cache.past);
  for (const ManifestLength& length : manifest.lengths)
    others.insert(length.input);
  std::vector<InputExtent> extents;
  for (const auto& input : graph.inputs()) {
    if (input->initializer() || others.count(input->name()) || !input->type().hasRank())
      continue;
    for (size_t axis = 0; axis < input->type().rank(); ++axis)
      extents.push_back({input.get(), static_cast<int64_t>(axis)});
  }
  return extents;
}

Dim extentOf(const InputExtent& at) { return at.input->type().dim(at.axis); }

/// Extents of P + S and S; nullopt if inputs do not have them.
std::optional<std::pair<InputExtent, InputExtent>>
totalAndNew(const Graph& graph, const Manifest& manifest, const Dim& past) {
  const std::vector<InputExtent> extents = fedExtents(graph, manifest);
  for (const InputExtent& total : extents)
    for (const InputExtent& fresh : extents)
      if (extentOf(total).isKnownEqual(past + extentOf(fresh)))
        return std::pair(total, fresh);
  return std::nullopt;
}

class ComputePastLength final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    if (!context.manifest)
      return llvm::Error::success();
    Graph& graph = model.graph();
    Manifest& manifest = *context.manifest;
    const auto length = llvm::find_if(manifest.lengths, [](const ManifestLength& given) {
      return given.feed == LengthFeed::PastLength && given.dtype == ElementType::Int64 &&
             given.shape == std::vector<ManifestExtent>{int64_t{1}};
    });
    if (length == manifest.lengths.end())
      return llvm::Error::success();
    Value* past = graph.findValue(length->input);
    const auto known = past ? past->knownIntegers() : std::nullopt;
    if (!known || known->size() != 1)
      return llvm::Error::success();
    const auto extents = totalAndNew(graph, manifest, known->front());
    if (!extents)
      return llvm::Error::success();
    Rewriter rewriter(graph, computePastLengthName, context.journal, past->name());
    AttentionBuilder build(rewriter);
    Value& total = extent(extents->first, build);
    Value& computed = build.node("Sub", {total, extent(extents->second, build)}, {}, "past_length");
    computed.setKnownIntegers(*known);
    if (auto failure = rewriter.replace(*past, computed))
      return unsupported("the number of earlier tokens cannot be computed: {}", failure->str());
    manifest.lengths.erase(length);
    graph.removeInput(*past);
    model.setMetadata(manifestKey, manifest.json());
    model.markEdited();
    context.count(computePastLengthName, "lengths", 1);
    return llvm::Error::success();
  }

private:
  /// The extent as int64 [1].
  static Value& extent(const InputExtent& at, AttentionBuilder& build) {
    Value& extents = build.node("Shape", {*at.input}, {}, "shape");
    return build.node("Gather", {extents, ints({at.axis})}, {}, "extent");
  }
};

} // namespace

void register_compute_past_length(PassRegistry& registry) {
  registry.add({computePastLengthName,
                "Computes the number of earlier tokens from extents of inputs.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(
                      std::make_unique<ComputePastLength>());
                }});
}

} // namespace kvopt::transforms
