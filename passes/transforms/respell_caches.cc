// Writes keys, values and presents of attention that was not recognized anew, from what they are
// found to be by evaluation: rows of a cache joined with new ones, moved and repeated.
//
//   before   k = any subgraph of gathers, selections, reshapes, products with ones and zeros, …
//   after    k = Reshape(Expand(Transpose(Concat<axis>(past, Transpose(Reshape(rows))))))
//
// Rules then recognize it. Evaluations at steps of several sizes agree on the form, and so do those
// at other sizes with what is written; where they do not, the graph stays as it is.
#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "ir/shapes/shape_rules.h"
#include "passes/analysis/cache/site.h"
#include "passes/analysis/evaluation/attention_operands.h"
#include "passes/pass.h"
#include "passes/pattern/shape_builder.h"
#include "passes/rows/respelled_rows.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace rows;

namespace {

constexpr const char* respellCachesName = "respell-caches";

/// An operand of a missed site's attention.
struct ReadOperand {
  Node* node;
  unsigned index;

  Value* value() const { return node->operand(index); }
};

void addOperands(const AttentionSite& site, StepEvaluations& evaluations,
                 std::vector<ReadOperand>& operands) {
  Node& node = *site.node;
  if (node.graph().parentNode())
    return;
  if (node.op() == OpName("ai.kvopt::Sdpa")) {
    operands.push_back({&node, 1});
    operands.push_back({&node, 2});
  } else if (node.is("Softmax")) {
    if (const auto found = attentionOperands(node, evaluations.at(0))) {
      operands.push_back({found->scores, 0});
      operands.push_back({found->scores, 1});
      operands.push_back({found->output, found->valueOperand});
    }
  }
}

bool isFullyKnown(const TensorType& type) {
  return type.hasRank() &&
         llvm::none_of(type.shape(), [](const Dim& dim) { return isOpenExtent(dim); });
}

/// Whether the site is missed, or reads rows of a cache that was not found.
bool isOpen(const AttentionSite& site, StepEvaluations& evaluations) {
  if (!site.isMatched())
    return true;
  if (site.hasCache() || site.node->graph().parentNode() || evaluations.count() == 0)
    return false;
  return llvm::any_of(llvm::ArrayRef<unsigned>{1, 2}, [&](unsigned operand) {
    return joinedPast(*site.node->operand(operand), evaluations.at(0)) != nullptr;
  });
}

size_t countOpen(const Graph& graph, const SiteList& sites, const InterfaceFacts& facts) {
  StepEvaluations evaluations(graph, facts);
  return static_cast<size_t>(
      llvm::count_if(sites, [&](const AttentionSite& site) { return isOpen(site, evaluations); }));
}

class RespellCaches final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    const SiteList sites = findSites(model.graph());
    const bool mayRecognize = llvm::none_of(context.disabledPasses, [](llvm::StringRef name) {
      return name == "raise-attention" || name == "normalize";
    });
    const size_t open = mayRecognize ? countOpen(model.graph(), sites, context.interface) : 0;
    if (open == 0)
      return llvm::Error::success();
    // What does not help is not written: it is tried on a copy.
    auto copy = copySharingConstants(model);
    if (!copy)
      return copy.takeError();
    PassContext trial(context.rules, context.targets);
    trial.interface = context.interface;
    trial.disabledRules = context.disabledRules;
    trial.matcher = context.matcher;
    for (const auto& name : context.leftAlone)
      trial.leftAlone.insert(name.first());
    if (llvm::Error error = inferShapes((*copy)->graph()))
      return error;
    isTrial = true;
    auto changes = respell(**copy, trial);
    isTrial = false;
    if (!changes)
      return changes.takeError();
    const SiteList then = findSites((*copy)->graph());
    if (!*changes || countOpen((*copy)->graph(), then, trial.interface) >= open)
      return llvm::Error::success();
    changes = respell(model, context);
    return changes ? llvm::Error::success() : changes.takeError();
  }

private:
  /// Whether a value is what was written for it. What was found on the copy holds for the model,
  /// whose values have the same names.
  bool isEqual(const Value& before, const Value& after, StepEvaluations& evaluations) {
    const bool isSame = (!isTrial && equalValues.contains(before.name())) ||
                        areAlwaysEqual(before, after, evaluations);
    if (isSame)
      equalValues.insert(before.name());
    return isSame;
  }

  /// Whether anything was written.
  llvm::Expected<bool> respell(Model& model, PassContext& context) {
    Graph& graph = model.graph();
    const SiteList sites = findSites(graph);
    StepEvaluations evaluations(graph, context.interface);
    std::vector<ReadOperand> operands;
    for (const AttentionSite& site : sites)
      if (isOpen(site, evaluations))
        addOperands(site, evaluations, operands);
    if (operands.empty())
      return false;
    // Outputs first: what they are made of is what attention should read.
    llvm::SetVector<Value*> values;
    for (Value* output : graph.outputs())
      if (output->producer() && output->type().hasRank() && output->type().rank() >= 3)
        values.insert(output);
    for (const ReadOperand& operand : operands)
      values.insert(operand.value());
    llvm::SmallVector<std::pair<Value*, RespelledRows>, 8> found;
    llvm::SmallVector<const Value*, 8> fresh;
    for (Value* value : values)
      if (auto rows = respelledRows(*value, evaluations, fresh); rows && rows->past) {
        fresh.push_back(rows->fresh);
        found.emplace_back(value, std::move(*rows));
      }
    std::vector<std::pair<ReadOperand, Shape>> stated;
    for (const ReadOperand& operand : operands)
      if (!isFullyKnown(operand.value()->type()) &&
          llvm::none_of(found, [&](const auto& each) { return each.first == operand.value(); }))
        if (auto shape = extentsBehind(*operand.value(), evaluations))
          stated.emplace_back(operand, std::move(*shape));
    if (found.empty() && stated.empty())
      return false;
    return write(model, context, found, stated);
  }

  using Found = llvm::ArrayRef<std::pair<Value*, RespelledRows>>;
  using Stated = llvm::ArrayRef<std::pair<ReadOperand, Shape>>;

  llvm::Expected<bool> write(Model& model, PassContext& context, Found found, Stated stated) {
    Graph& graph = model.graph();
    Rewriter rewriter(graph, respellCachesName, context.journal, respellCachesName);
    llvm::SmallVector<Rewriter::Replacement, 8> written;
    RowWriter writer(rewriter);
    for (const auto& [before, rows] : found)
      if (Value* after = writer.write(rows); after && after != before)
        written.push_back({before, after});
    StepEvaluations evaluations(graph, context.interface);
    addJoinedElsewhere(writer.joined(), evaluations, written);
    llvm::erase_if(written, [&](const Rewriter::Replacement& each) {
      return !isEqual(*each.before, *each.after, evaluations);
    });
    unsigned replaced = 0;
    for (const Rewriter::Replacement& each : written)
      replaced += rewriter.replace(*each.before, *each.after) ? 0 : 1;
    ShapeBuilder shapes(rewriter);
    for (const auto& [operand, shape] : stated)
      if (Value* reshaped = shapes.reshape(*operand.value(), shape, "stated");
          reshaped && reshaped != operand.value()) {
        operand.node->setOperand(operand.index, reshaped);
        ++replaced;
      }
    context.count(respellCachesName, "respelled", replaced);
    graph.eraseDeadNodes();
    model.markEdited();
    if (llvm::Error error = recognize(model, context))
      return error;
    return replaced != 0;
  }

  /// Values on the way to outputs that hold the same rows as one of the caches that were written.
  static void addJoinedElsewhere(llvm::ArrayRef<RowWriter::Joined> joined,
                                 StepEvaluations& evaluations,
                                 llvm::SmallVector<Rewriter::Replacement, 8>& written) {
    if (joined.empty() || evaluations.count() == 0)
      return;
    Evaluation& evaluation = evaluations.at(0);
    for (Value* output : joined.front().value->graph().outputs()) {
      if (llvm::any_of(written, [&](const auto& each) { return each.before == output; }))
        continue;
      std::vector<const Value*> visited;
      std::vector<LinearForm> forms;
      evaluation.noteVisited(&visited);
      const bool isTraced = evaluation.traceAll(*output, forms);
      evaluation.noteVisited(nullptr);
      if (!isTraced)
        continue;
      for (const Value* value : visited)
        for (const RowWriter::Joined& each : joined) {
          const Extents* extents = evaluation.extents(*value);
          auto* before = const_cast<Value*>(value);
          if (value == each.value || !value->producer() || value->graph().parentNode() ||
              !extents || *extents != *evaluation.extents(*each.value) ||
              llvm::any_of(written, [&](const auto& other) { return other.before == before; }) ||
              !areAlwaysEqual(*value, *each.value, evaluations))
            continue;
          written.push_back({before, each.value});
        }
    }
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

  bool isTrial = false;
  llvm::StringSet<> equalValues;
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
