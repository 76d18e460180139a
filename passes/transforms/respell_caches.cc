// Rewrites keys, values and presents of unrecognized attention based on evaluation: as rows of a
// cache joined with new ones, moved and repeated.
//
//   before   k = any subgraph of gathers, selections, reshapes, products with ones and zeros, …
//   after    k = Reshape(Expand(Transpose(Concat<axis>(past, Transpose(Reshape(rows))))))
//
// Rules then recognize the attention. Evaluations at steps of several sizes must agree on the form,
// and evaluations at other sizes must agree with the rewritten value; otherwise the graph does not
// change.
#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "ir/shapes/shape_rules.h"
#include "passes/analysis/cache/site.h"
#include "passes/analysis/evaluation/affine_argument.h"
#include "passes/analysis/evaluation/attention_operands.h"
#include "passes/pass.h"
#include "passes/pattern/explain.h"
#include "passes/pattern/shape_builder.h"
#include "passes/rows/respelled_products.h"
#include "passes/rows/row_writer.h"
#include "passes/transforms/cut_caches.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

#include <set>
#include <string>

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

void addOperands(const AttentionSite& site, std::vector<ReadOperand>& operands) {
  Node& node = *site.node;
  if (node.graph().parentNode())
    return;
  if (node.op() == OpName("ai.kvopt::Sdpa")) {
    operands.push_back({&node, 1});
    operands.push_back({&node, 2});
  }
}

/// A softmax between two products that is still decomposed.
struct SpelledSoftmax {
  Node* node;
  AttentionOperands products;
};

std::vector<SpelledSoftmax> spelledSoftmaxes(Graph& graph, StepEvaluations& evaluations) {
  std::vector<SpelledSoftmax> found;
  if (evaluations.count() != 0)
    for (Node& node : graph.nodes())
      if (node.is("Softmax"))
        if (const auto products = attentionOperands(node, evaluations.at(0)))
          found.push_back({&node, *products});
  return found;
}

void addOperands(const SpelledSoftmax& softmax, std::vector<ReadOperand>& operands) {
  const auto& [scores, output, hasValuesLeft] = softmax.products;
  if (scores->operands().size() == 2) {
    operands.push_back({scores, 0});
    operands.push_back({scores, 1});
  }
  if (output->operands().size() == 2)
    operands.push_back({output, hasValuesLeft ? 0U : 1U});
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

/// Number of open sites, and of softmaxes that are not sites.
size_t countOpen(Graph& graph, const SiteList& sites, const InterfaceFacts& facts) {
  StepEvaluations evaluations(graph, facts);
  size_t count = static_cast<size_t>(
      llvm::count_if(sites, [&](const AttentionSite& site) { return isOpen(site, evaluations); }));
  for (const SpelledSoftmax& softmax : spelledSoftmaxes(graph, evaluations))
    count +=
        llvm::none_of(sites, [&](const AttentionSite& site) { return site.node == softmax.node; });
  return count;
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
    // Rewrites are first tried on a copy; those that do not help are discarded.
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
    if (!*changes)
      return llvm::Error::success();
    // Parts of one cache are separated later.
    if (hasParts)
      if (llvm::Error error = cutCaches(**copy, trial))
        return error;
    const SiteList then = findSites((*copy)->graph());
    if (countOpen((*copy)->graph(), then, trial.interface) >= open)
      return llvm::Error::success();
    changes = respell(model, context);
    llvm::append_range(context.assumptions, assumed);
    return changes ? llvm::Error::success() : changes.takeError();
  }

private:
  /// Whether a value equals its replacement. Results for the copy hold for the model, whose values
  /// have the same names.
  bool isEqual(const Value& before, const Value& after, const RespelledRows* rows,
               StepEvaluations& evaluations) {
    if (!isTrial && equalValues.contains(before.name()))
      return true;
    const Value* past = rows ? rows->past : nullptr;
    const AffineArgument argument =
        affineArgument(before, {past, rows ? rows->fresh : nullptr}, evaluations);
    // Values that may differ at untried sizes do not justify a rewrite.
    if (argument.maySwitch)
      return false;
    const bool listsPlaces = rows && rows->place && rows->place->kind != WritePlace::Kind::First;
    bool isSame = areAlwaysEqual(before, after, evaluations);
    if (!isSame && listsPlaces) {
      isSame = areAlwaysEqual(before, after, evaluations, rows->place->input);
      if (isSame)
        assumed.insert(formatted("the elements of {} increase by one", rows->place->input->name()));
    }
    if (isSame && argument.broken)
      assumed.insert(formatted("{} has the same form at all sizes as at those that were tried",
                               labelOf(*argument.broken->node)));
    if (isSame)
      equalValues.insert(before.name());
    return isSame;
  }

  /// Returns whether anything was rewritten.
  llvm::Expected<bool> respell(Model& model, PassContext& context) {
    auto ofProducts = respellProducts(model, context);
    if (!ofProducts)
      return ofProducts;
    auto ofRows = respellRows(model, context);
    return ofRows ? llvm::Expected<bool>(*ofProducts || *ofRows) : std::move(ofRows);
  }

  llvm::Expected<bool> respellProducts(Model& model, PassContext& context) {
    Graph& graph = model.graph();
    std::vector<RespelledScores> scores;
    std::vector<RespelledOutput> outputs;
    StepEvaluations evaluations(graph, context.interface);
    for (const SpelledSoftmax& softmax : spelledSoftmaxes(graph, evaluations)) {
      if (auto found = respelledScores(*softmax.node, softmax.products, evaluations))
        scores.push_back(std::move(*found));
      if (auto found = respelledOutput(*softmax.node, softmax.products, evaluations))
        outputs.push_back(std::move(*found));
    }
    if (scores.empty() && outputs.empty())
      return false;
    Rewriter rewriter(graph, respellCachesName, context.journal, respellCachesName);
    llvm::SmallVector<Rewriter::Replacement, 8> written;
    for (const RespelledScores& each : scores)
      written.push_back({each.scores, rows::write(each, rewriter)});
    for (const RespelledOutput& each : outputs)
      written.push_back({each.output, rows::write(each, rewriter)});
    return replaceEqual(model, context, rewriter, written, {}, {});
  }

  llvm::Expected<bool> respellRows(Model& model, PassContext& context) {
    Graph& graph = model.graph();
    const SiteList sites = findSites(graph);
    StepEvaluations evaluations(graph, context.interface);
    std::vector<ReadOperand> operands;
    for (const AttentionSite& site : sites)
      if (isOpen(site, evaluations))
        addOperands(site, operands);
    for (const SpelledSoftmax& softmax : spelledSoftmaxes(graph, evaluations))
      addOperands(softmax, operands);
    if (operands.empty())
      return false;
    // Outputs first: attention should read the values that they consist of.
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
    addParts(values.getArrayRef(), evaluations, found);
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

  /// Adds values that hold a part of a cache whose output was found.
  void addParts(llvm::ArrayRef<Value*> values, StepEvaluations& evaluations,
                llvm::SmallVectorImpl<std::pair<Value*, RespelledRows>>& found) {
    const size_t outputs = found.size();
    for (Value* value : values) {
      if (llvm::any_of(found, [&](const auto& each) { return each.first == value; }))
        continue;
      for (size_t i = 0; i < outputs; ++i)
        if (auto rows = found[i].first->isGraphOutput()
                            ? rowsMovedFrom(*value, *found[i].first, evaluations)
                            : std::nullopt) {
          found.emplace_back(value, std::move(*rows));
          hasParts = true;
          break;
        }
    }
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
    return replaceEqual(model, context, rewriter, written, found, stated);
  }

  /// Replaces values that equal their replacement, and runs the rules once more. Returns whether
  /// anything was replaced.
  llvm::Expected<bool> replaceEqual(Model& model, PassContext& context, Rewriter& rewriter,
                                    llvm::SmallVector<Rewriter::Replacement, 8>& written,
                                    Found found, Stated stated) {
    Graph& graph = model.graph();
    StepEvaluations evaluations(graph, context.interface);
    llvm::erase_if(written, [&](const Rewriter::Replacement& each) {
      const auto* rows =
          llvm::find_if(found, [&](const auto& entry) { return entry.first == each.before; });
      return !each.after || !isEqual(*each.before, *each.after,
                                     rows == found.end() ? nullptr : &rows->second, evaluations);
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

  /// Adds values on the way to outputs that hold the same rows as a rewritten cache.
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
  bool hasParts = false; ///< whether keys or values are a part of a cache that was found
  llvm::StringSet<> equalValues;
  std::set<std::string> assumed; ///< sentences about values found to be equal
};

} // namespace

void register_respell_caches(PassRegistry& registry) {
  registry.add({respellCachesName,
                "Rewrites keys, values and presents based on evaluation.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<RespellCaches>());
                }});
}

} // namespace kvopt::transforms
