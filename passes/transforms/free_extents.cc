// Gives symbols to the extents that an export fixed: batch rows, tokens, and rows of the caches.
//
//   before   (int64[1, 1] input_ids, float[1, 2, 5, 16] past_key, …)
//            split = Reshape(hidden, [1, 1, 8, 64])
//   after    (int64[batch, sequence] input_ids, float[batch, 2, past, 16] past_key, …)
//            split = Reshape(hidden, [0, 0, 8, 64])
//
// What follows from extents is followed from the inputs on. Numbers that an exporter computed from
// them are computed again: shapes of a Reshape or Expand, ranges, positions, parts of tables. What
// the model then computes for other extents is proved afterwards (prove-extents): nothing here
// relies on one axis of extent one being another one than it seems.
#include "ir/shapes/shape_inference.h"
#include "passes/extents/freed_nodes.h"
#include "passes/pass.h"
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
  explicit FreeExtents(llvm::StringSet<> axes) : wanted(std::move(axes)) {}

  llvm::Error run(Model& model, PassContext& context) override {
    Graph& graph = model.graph();
    const auto found = findDecoderExtents(graph);
    if (const auto* why = std::get_if<std::string>(&found))
      return refused(context, *why);
    FreedExtents freed{std::get<DecoderExtents>(found), std::get<DecoderExtents>(found)};
    const auto free = [&](Dim& extent, const char* name) {
      if (wanted.contains(name) && extent.value().value_or(0) > 0)
        extent = Dim::symbol(freshSymbol(graph, name));
    };
    free(freed.symbols.batch, "batch");
    free(freed.symbols.tokens, "sequence");
    free(freed.symbols.past, "past");
    if (freed.str().empty())
      return refused(context, "those extents are symbols already");
    const std::vector<FreedInput> inputs = freedInputs(graph, freed.exported, freed.symbols);
    for (const FreedInput& input : inputs)
      input.input->setType(TensorType(input.input->type().elementType(), input.shape));
    {
      Rewriter rewriter(graph, freeExtentsName, context.journal);
      ExtentSymbols symbols(freed.exported, freed.symbols, inputs, rewriter);
      if (const auto obstacle = freeNodes(graph, symbols))
        return refused(context, fmt::format("{}: {}", obstacle->node->describe(), obstacle->why));
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
      name = fmt::format("{}_{}", base, number);
    return name;
  }

  static llvm::Error refused(PassContext& context, const std::string& why) {
    context.sites.clear();
    return unsupported("extent-fixed: {}", why).as<RefusedError>();
  }

  llvm::StringSet<> wanted;
};

llvm::Expected<std::unique_ptr<Pass>> makeFreeExtents(const PassOptions& given) {
  llvm::StringSet<> axes;
  const auto option = given.find("axes");
  llvm::SmallVector<llvm::StringRef, 3> names;
  const llvm::StringRef text =
      option == given.end() ? "batch+sequence+past" : llvm::StringRef(option->second);
  text.split(names, '+');
  for (llvm::StringRef name : names) {
    if (name != "batch" && name != "sequence" && name != "past")
      return usageError("free-extents: 'axes' are batch, sequence and past with + between them, "
                        "not '{}'",
                        name);
    axes.insert(name);
  }
  if (axes.contains("past") && !axes.contains("sequence"))
    return usageError("free-extents: rows of the caches grow by those of the sequence")
        .hint("axes=sequence+past");
  return std::make_unique<FreeExtents>(std::move(axes));
}

} // namespace

void register_free_extents(PassRegistry& registry) {
  registry.add({freeExtentsName,
                "Gives symbols to the batch, sequence and past extents that an export fixed.",
                {"axes"},
                makeFreeExtents});
}

} // namespace kvopt::transforms
