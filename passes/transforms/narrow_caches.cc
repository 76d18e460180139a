// Rounds the rows of growing float32 caches to a 16-bit type.
//
//   before   present_key = Concat<2>(past_key, k)
//            o = ai.kvopt.Sdpa(q, present_key, …)
//   after    present_key = Concat<2>(past_key, Cast(k))
//            o = ai.kvopt.Sdpa(q, Cast(present_key), …)
//
// Targets read such rows in the type of the query, without a copy. A cache that something other
// than a join reads, or that is returned in another form, does not change.
#include "ir/manifest/manifest.h"
#include "ir/shapes/shape_inference.h"
#include "passes/builders/attention_builder.h"
#include "passes/pass.h"
#include "passes/transforms/configured_passes.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* narrowCachesName = "narrow-caches";

/// Whether the cache is joined to new rows, and the main graph returns the joined rows unchanged.
bool isNarrowable(const SiteCache& cache) {
  const Node* writer = cache.writer;
  return cache.update == CacheUpdate::Grows && writer && writer->is("Concat") &&
         !writer->graph().parentNode() && cache.updaters == 1 && !cache.fromStart &&
         writer->operands().size() == 2 && writer->operand(0) == cache.past &&
         cache.output == &writer->result() &&
         cache.past->type().elementType() == ElementType::Float &&
         llvm::all_of(cache.past->uses(), [&](const Use& use) {
           return &use.user() == writer || use.user().is("Shape");
         });
}

class NarrowCaches final : public Pass {
public:
  explicit NarrowCaches(ElementType narrowType) : narrow(narrowType) {}

  llvm::Error run(Model& model, PassContext& context) override {
    Graph& graph = model.graph();
    llvm::DenseSet<const Value*> done;
    auto stored = manifestOf(model);
    if (!stored)
      return stored.takeError();
    for (const AttentionSite& site : findSites(graph)) {
      // Keys and values of two types do not change: verification removes the rounding, and without
      // it no operator supports two types.
      if (site.failure || !site.grows() ||
          site.key->past->type().elementType() != site.value->past->type().elementType())
        continue;
      for (const auto* cache : {&site.key, &site.value})
        if (isNarrowable(**cache) && done.insert((*cache)->past).second)
          round(**cache, context);
    }
    if (done.empty())
      return llvm::Error::success();
    context.count(narrowCachesName, "caches", static_cast<int64_t>(done.size()));
    restoreOrder(graph);
    graph.eraseDeadNodes();
    model.markEdited();
    // The manifest of an earlier rewrite has other element types; a new manifest will be written.
    if (*stored && !(*stored)->ownsCaches())
      model.removeMetadata(manifestKey);
    return inferShapes(graph);
  }

private:
  void round(const SiteCache& cache, PassContext& context) {
    Node& writer = *cache.writer;
    Rewriter rewriter(writer.graph(), narrowCachesName, context.journal, writer.name());
    AttentionBuilder build(rewriter);
    const TensorType& type = cache.past->type();
    cache.past->setType(TensorType(narrow, Shape(type.shape().begin(), type.shape().end())));
    Value& rows = build.castTo(*writer.operand(1), narrow);
    Value& joined = rewriter.createLike(writer, {cache.past, &rows}).result();
    Value& read = build.castTo(joined, ElementType::Float);
    Value& present = writer.result();
    for (Use& use : llvm::make_early_inc_range(present.uses()))
      use.user().setOperand(use.operandIndex(), use.user().is("Shape") ? &joined : &read);
    present.replaceAllUsesWith(joined); // the result that is the output
    context.history.addRounding(cache.past->name(), ElementType::Float);
  }

  ElementType narrow;
};

llvm::Expected<std::unique_ptr<Pass>> narrowCachesOf(const PassOptions& given) {
  const auto to = given.find("to");
  const std::string name = to == given.end() ? "float16" : to->second;
  if (name != "float16" && name != "bfloat16")
    return usageError("narrow-caches: 'to' must be float16 or bfloat16, not '{}'", name);
  return makeNarrowCaches(name == "float16" ? ElementType::Float16 : ElementType::BFloat16);
}

} // namespace

std::unique_ptr<Pass> makeNarrowCaches(ElementType type) {
  assert((type == ElementType::Float16 || type == ElementType::BFloat16) && "a 16-bit type");
  return std::make_unique<NarrowCaches>(type);
}

void register_narrow_caches(PassRegistry& registry) {
  registry.add({narrowCachesName,
                "Rounds the rows of growing float32 caches to a 16-bit type.",
                {"to"},
                narrowCachesOf});
}

} // namespace kvopt::transforms
