// Writes keys, values and presents of attention that was not recognized anew, from what they are
// found to be by evaluation: rows of a cache joined with new ones, moved and repeated.
//
//   before   k = any subgraph of gathers, selections, reshapes, products with ones and zeros, …
//   after    k = Reshape(Expand(Transpose(Concat<axis>(past, Transpose(Reshape(rows))))))
//
// Rules then recognize it. Evaluations at steps of several sizes agree on the form, and so do those
// at other sizes with what is written; where they do not, the graph stays as it is.
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/site.h"
#include "passes/analysis/evaluation/attention_operands.h"
#include "passes/pass.h"
#include "passes/rows/respelled_rows.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace rows;

namespace {

constexpr const char* respellCachesName = "respell-caches";

/// The values that a site's attention reads.
void addOperands(AttentionSite& site, StepEvaluations& evaluations,
                 llvm::SetVector<Value*>& operands) {
  Node& node = *site.node;
  if (node.graph().parentNode())
    return;
  if (node.op() == OpName("ai.kvopt::Sdpa")) {
    operands.insert(node.operand(1));
    operands.insert(node.operand(2));
    return;
  }
  if (!node.is("Softmax"))
    return;
  if (const auto found = attentionOperands(node, evaluations.at(0)))
    for (Value* operand : {found->scoresLeft, found->scoresRight, found->values})
      operands.insert(operand);
}

class RespellCaches final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    Graph& graph = model.graph();
    SiteList sites = findSites(graph);
    if (llvm::all_of(sites, [](const AttentionSite& site) { return site.isMatched(); }))
      return llvm::Error::success();
    StepEvaluations evaluations(graph, context.interface);
    llvm::SetVector<Value*> values;
    for (AttentionSite& site : sites)
      if (!site.isMatched())
        addOperands(site, evaluations, values);
    if (values.empty())
      return llvm::Error::success();
    for (Value* output : graph.outputs())
      if (output->producer() && !output->producer()->results().empty() &&
          output->type().hasRank() && output->type().rank() >= 3)
        values.insert(output);
    llvm::SmallVector<std::pair<Value*, RespelledRows>, 8> found;
    for (Value* value : values)
      if (auto rows = respelledRows(*value, evaluations))
        found.emplace_back(value, std::move(*rows));
    if (found.empty())
      return llvm::Error::success();
    return write(model, context, found);
  }

private:
  using Found = llvm::ArrayRef<std::pair<Value*, RespelledRows>>;

  llvm::Error write(Model& model, PassContext& context, Found found) {
    Graph& graph = model.graph();
    Rewriter rewriter(graph, respellCachesName, context.journal, respellCachesName);
    llvm::SmallVector<Rewriter::Replacement, 8> written;
    for (const auto& [before, rows] : found)
      if (Value* after = writeRows(rows, rewriter); after && after != before)
        written.push_back({before, after});
    StepEvaluations evaluations(graph, context.interface);
    llvm::erase_if(written, [&](const Rewriter::Replacement& each) {
      return !isSame(*each.before, *each.after, evaluations);
    });
    unsigned replaced = 0;
    for (const Rewriter::Replacement& each : written)
      replaced += rewriter.replace(*each.before, *each.after) ? 0 : 1;
    context.count(respellCachesName, "respelled", replaced);
    graph.eraseDeadNodes();
    model.markEdited();
    return replaced == 0 ? llvm::Error::success() : recognize(model, context);
  }

  /// The same elements at every size.
  static bool isSame(const Value& before, const Value& after, StepEvaluations& evaluations) {
    for (size_t i = 0; i < evaluations.count(); ++i) {
      std::vector<LinearForm> one, other;
      Evaluation& evaluation = evaluations.at(i);
      if (!evaluation.traceAll(before, one) || !evaluation.traceAll(after, other) || one != other ||
          *evaluation.extents(before) != *evaluation.extents(after))
        return false;
    }
    return true;
  }

  static llvm::Error recognize(Model& model, PassContext& context) {
    for (RuleGroup group : {RuleGroup::Normalize, RuleGroup::Raise, RuleGroup::Normalize}) {
      if (llvm::Error error = inferShapes(model.graph()))
        return error;
      llvm::SmallVector<const RuleRegistry::Entry*, 16> rules;
      for (const RuleRegistry::Entry& entry : context.rules.all())
        if (entry.rule->group() == group)
          rules.push_back(&entry);
      if (llvm::Error error = applyRuleList(model, rules, respellCachesName, context))
        return error;
    }
    return inferShapes(model.graph());
  }
};

} // namespace

void register_respell_caches(PassRegistry& registry) {
  registry.add({respellCachesName,
                "Writes keys, values and presents anew from what evaluation finds them to be.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<RespellCaches>());
                }});
}

} // namespace kvopt::transforms
