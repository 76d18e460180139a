// Replaces each If of the main graph whose condition is known by the branch that it takes: a
// decoder that combines two models becomes one of them.
//
//   specialise-branch                                  conditions that are constants
//   specialise-branch{input=use_cache_branch value=1}  and those that this bool input decides
//   specialise-branch{past=1}                          and those that decide whether a past is
//                                                      read, by the sites that were found: it
//                                                      always is, and the input remains
#include "ir/attribute_list.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/branch_caches.h"
#include "passes/pass.h"
#include "passes/transforms/configured_passes.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

/// Copies a branch's nodes before the If, and replaces the results of the If.
class Splicer {
public:
  Splicer(Graph& mainGraph, Node& replacedIf) : graph(mainGraph), choice(replacedIf) {}

  llvm::Error run(const Graph& branch) {
    for (const std::unique_ptr<Value>& constant : branch.initializers()) {
      if (!constant->initializer())
        return unsupported("a sparse constant in a branch cannot be moved").value(constant->name());
      keep(*constant, graph.addConstant(constant->name(), constant->initializer()));
    }
    for (const Node& node : branch.nodes())
      if (llvm::Error error = copy(node))
        return error;
    for (Value& result : choice.results())
      if (!result.isAbsent())
        result.replaceAllUsesWith(*mapped(branch.outputs()[result.resultIndex()]));
    graph.erase(choice);
    restoreNames();
    return llvm::Error::success();
  }

private:
  Value* mapped(Value* value) const {
    Value* copied = copies.lookup(value);
    return copied ? copied : value;
  }

  void keep(const Value& original, Value& copied) {
    copies[&original] = &copied;
    names.push_back({&copied, copied.name().str(), original.name().str()});
  }

  llvm::Error copy(const Node& node) {
    llvm::SmallVector<Value*, 6> operands;
    for (const Use& use : node.operands())
      operands.push_back(mapped(use.value()));
    Node& copied = graph.createFresh(node.op(), operands, node.results().size(), &choice);
    copied.setName(node.name().str());
    if (!node.subgraphs().empty())
      return unsupported("a branch that contains subgraphs cannot be moved")
          .node(node.name(), node.op().str());
    copyAttributes(node, copied);
    copied.setMetadata(node.metadata());
    for (unsigned i = 0; i < node.results().size(); ++i) {
      copied.result(i).setType(node.result(i).type());
      keep(node.result(i), copied.result(i));
    }
    return llvm::Error::success();
  }

  /// Restores the values' names in the branch, except for those that are outputs now.
  void restoreNames() {
    for (const Named& named : names)
      if (named.value->name() == named.given && !named.original.empty() &&
          graph.freshName(named.original) == named.original)
        graph.rename(*named.value, named.original);
  }

  struct Named {
    Value* value;
    std::string given;
    std::string original;
  };

  Graph& graph;
  Node& choice;
  llvm::DenseMap<const Value*, Value*> copies;
  std::vector<Named> names;
};

class SpecialiseBranch final : public Pass {
public:
  SpecialiseBranch(std::string inputName, bool inputValue)
      : name(std::move(inputName)), value(inputValue) {}
  static std::unique_ptr<SpecialiseBranch> alwaysWithPast() {
    auto pass = std::make_unique<SpecialiseBranch>("", false);
    pass->withPast = true;
    return pass;
  }

  llvm::Error run(Model& model, PassContext& context) override {
    Graph& graph = model.graph();
    Value* input = nullptr;
    if (withPast) {
      input = takeFlag(context);
      if (!input)
        return llvm::Error::success();
    } else if (!name.empty()) {
      input = graph.findValue(name);
      if (!input || !input->isGraphInput() || input->type().elementType() != ElementType::Bool)
        return usageError("the model has no bool input '{}'", name);
    }
    for (Node& node : llvm::make_early_inc_range(graph.nodes())) {
      if (!node.is("If"))
        continue;
      std::optional<bool> taken = conditionValue(node, input);
      const Attribute* branch =
          taken ? node.attribute(*taken ? "then_branch" : "else_branch") : nullptr;
      if (!branch || branch->graphs().size() != 1 ||
          branch->graphs().front()->outputs().size() < node.results().size())
        continue;
      if (llvm::Error error = Splicer(graph, node).run(*branch->graphs().front()))
        return error;
      context.count("specialise-branch", "branches");
    }
    graph.eraseDeadNodes();
    // Programs may continue to feed the input.
    if (input && input->isUnused() && !withPast)
      graph.removeInput(*input);
    return inferShapes(graph);
  }

private:
  /// Finds the input that selects whether pasts are read, and fixes it to the value with a past;
  /// null if there is none.
  Value* takeFlag(PassContext& context) {
    std::optional<PastFlag> flag;
    for (const AttentionSite& site : context.sites)
      if (site.pastFlag)
        flag = site.pastFlag;
    context.sites.clear(); // they refer to nodes that are moved
    if (!flag)
      return nullptr;
    value = flag->withPast;
    context.unreadFlag = flag;
    context.assumptions.push_back(
        formatted("with an empty past the branch of {} = {} computes the same as the other one",
                  flag->input->name(), value));
    return flag->input;
  }

  std::optional<bool> conditionValue(const Node& choice, const Value* input) const {
    Condition condition = conditionOf(choice);
    if (!condition.source)
      return std::nullopt;
    if (condition.source == input)
      return value != condition.inverted;
    const TensorData* constant = condition.source->constant();
    auto elements = constant ? integerValues(*constant, 1) : std::nullopt;
    if (!elements || elements->size() != 1)
      return std::nullopt;
    return (elements->front() != 0) != condition.inverted;
  }

  std::string name;
  bool value;
  bool withPast = false;
};

} // namespace

std::unique_ptr<Pass> makeBranch(std::string input, bool value) {
  return std::make_unique<SpecialiseBranch>(std::move(input), value);
}

std::unique_ptr<Pass> makeBranchWithPast() { return SpecialiseBranch::alwaysWithPast(); }

void register_specialise_branch(PassRegistry& registry) {
  registry.add({"specialise-branch",
                "Replaces each If whose condition is known by the branch that it takes.",
                {"input", "value", "past"},
                [](const PassOptions& options) -> llvm::Expected<std::unique_ptr<Pass>> {
                  if (auto past = options.find("past"); past != options.end()) {
                    if (past->second != "1" || options.size() != 1)
                      return usageError("specialise-branch takes past=1 only by itself");
                    return makeBranchWithPast();
                  }
                  auto input = options.find("input");
                  auto value = options.find("value");
                  if ((input == options.end()) != (value == options.end()))
                    return usageError("specialise-branch takes input and value together");
                  if (input == options.end())
                    return makeBranch("", false);
                  if (value->second != "0" && value->second != "1")
                    return usageError("'{}' must be 0 or 1", value->second);
                  return makeBranch(input->second, value->second == "1");
                }});
}

} // namespace kvopt::transforms
