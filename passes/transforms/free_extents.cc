// Replaces the extents that an export fixed by symbols: batch rows, tokens, and rows of the caches.
//
//   before   (int64[1, 1] input_ids, float[1, 2, 5, 16] past_key, …)
//            split = Reshape(hidden, [1, 1, 8, 64])
//   after    (int64[batch, sequence] input_ids, float[batch, 2, past, 16] past_key, …)
//            split = Reshape(hidden, [0, 0, 8, 64])
//
// All other extents are inferred from the inputs. Numbers that an exporter computed from them are
// computed again: shapes of a Reshape or Expand, ranges, positions, parts of tables. The results
// for other extents are proved afterwards (prove-extents), so a wrong choice between axes of extent
// 1 is detected there.
#include "ir/shapes/shape_inference.h"
#include "passes/extents/freed_nodes.h"
#include "passes/pass.h"
#include "passes/transforms/configured_passes.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace extents;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* freeExtentsName = "free-extents";

class FreeExtents final : public Pass {
public:
  explicit FreeExtents(FreedAxes axes) : wanted(axes) {}

  llvm::Error run(Model& model, PassContext& context) override {
    Graph& graph = model.graph();
    const auto found = findDecoderExtents(graph);
    if (const auto* why = std::get_if<std::string>(&found))
      return refused(context, *why);
    FreedExtents freed{std::get<DecoderExtents>(found), std::get<DecoderExtents>(found)};
    const auto free = [&](Dim& extent, bool isWanted, const char* name) {
      if (isWanted && extent.value().value_or(0) > 0)
        extent = Dim::symbol(freshSymbol(graph, name));
    };
    free(freed.symbols.batch, wanted.batch, "batch");
    free(freed.symbols.tokens, wanted.sequence, "sequence");
    free(freed.symbols.past, wanted.past, "past");
    if (freed.str().empty())
      return refused(context, "nothing to do, because the extents are symbols already");
    const std::vector<FreedInput> inputs = freedInputs(graph, freed.exported, freed.symbols);
    for (const FreedInput& input : inputs)
      input.input->setType(TensorType(input.input->type().elementType(), input.shape));
    {
      Rewriter rewriter(graph, freeExtentsName, context.journal);
      ExtentSymbols symbols(freed.exported, freed.symbols, inputs, rewriter);
      if (const auto obstacle = freeNodes(graph, symbols))
        return refused(context, formatted("{}: {}", obstacle->node->describe(), obstacle->why));
      llvm::append_range(context.assumptions, symbols.assumptions());
    }
    graph.eraseDeadNodes();
    context.freed = std::move(freed);
    model.markEdited();
    return inferShapes(graph);
  }

private:
  static std::string freshSymbol(const Graph& graph, const std::string& base) {
    std::string name = base;
    const auto isTaken = [&](const std::unique_ptr<Value>& input) {
      return input->type().hasRank() && llvm::any_of(input->type().shape(), [&](const Dim& extent) {
               return llvm::is_contained(extent.symbols(), name);
             });
    };
    for (unsigned number = 2; llvm::any_of(graph.inputs(), isTaken); ++number)
      name = formatted("{}_{}", base, number);
    return name;
  }

  static llvm::Error refused(PassContext& context, const std::string& why) {
    context.sites.clear();
    return unsupported("extent-fixed: {}", why).as<RefusedError>();
  }

  FreedAxes wanted;
};

llvm::Expected<std::unique_ptr<Pass>> freeExtentsOf(const PassOptions& given) {
  FreedAxes axes;
  const auto option = given.find("axes");
  llvm::SmallVector<llvm::StringRef, 3> names;
  const llvm::StringRef text =
      option == given.end() ? "batch+sequence+past" : llvm::StringRef(option->second);
  text.split(names, '+');
  for (llvm::StringRef name : names) {
    bool* axis = name == "batch"      ? &axes.batch
                 : name == "sequence" ? &axes.sequence
                 : name == "past"     ? &axes.past
                                      : nullptr;
    if (!axis)
      return usageError("free-extents: 'axes' are batch, sequence and past with + between them, "
                        "not '{}'",
                        name);
    *axis = true;
  }
  if (axes.past && !axes.sequence)
    return usageError("free-extents: caches grow by the rows of the sequence")
        .hint("axes=sequence+past");
  return makeFreeExtents(axes);
}

} // namespace

std::unique_ptr<Pass> makeFreeExtents(FreedAxes axes) {
  assert((axes.sequence || !axes.past) && "caches grow by the rows of the sequence");
  return std::make_unique<FreeExtents>(axes);
}

void register_free_extents(PassRegistry& registry) {
  registry.add({freeExtentsName,
                "Replaces the batch, sequence and past extents that an export fixed by symbols.",
                {"axes"},
                freeExtentsOf});
}

} // namespace kvopt::transforms
