// Follows positions through a graph.
#include "passes/analysis/rotation/position_flow.h"

#include "ir/manifest/documented_inputs.h"
#include "ir/movement.h"
#include "passes/analysis/interface/input_roles.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

using State = PositionFlow::State;

State joined(State a, State b) {
  return static_cast<State>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

/// Inputs that hold ids of tokens or of segments, by the documented names that drivers use, or by
/// their readers.
llvm::DenseSet<const Value*> tokenInputsOf(const Graph& graph) {
  Manifest described;
  describeInputs(graph, readInterface(graph), described);
  llvm::DenseSet<const Value*> tokens;
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    if (const DocumentedInput* documented = documentedInput(*input);
        documented && documented->feed == InputFeed::Tokens)
      tokens.insert(input.get());
    for (const ManifestInput& each : described.inputs)
      if (each.input == input->name() &&
          (each.feed == InputFeed::Tokens || each.feed == InputFeed::Segments))
        tokens.insert(input.get());
  }
  return tokens;
}

void addSymbols(const Dim& extent, llvm::SmallVectorImpl<std::string>& symbols) {
  for (const std::string& symbol : extent.symbols())
    if (!llvm::is_contained(symbols, symbol))
      symbols.push_back(symbol);
}

/// Adds the states of all values of `outer` that the graph or a nested one reads.
void addCaptured(const Graph& inner, const Graph& outer, State& state, const PositionFlow& flow) {
  for (const Node& node : inner.nodes()) {
    for (const Use& use : node.operands())
      if (use.value() && &use.value()->graph() == &outer)
        state = joined(state, flow.of(*use.value()));
    for (const Graph* nested : node.subgraphs())
      addCaptured(*nested, outer, state, flow);
  }
  for (const Value* output : inner.outputs())
    if (&output->graph() == &outer)
      state = joined(state, flow.of(*output));
}

} // namespace

PositionFlow::PositionFlow(const Graph& graph, llvm::ArrayRef<AttentionSite> sites) {
  llvm::SmallVector<std::string, 2> batchSymbols;
  for (const AttentionSite& site : sites) {
    attentions.insert(site.node);
    if (const Node* choice = site.node->graph().parentNode();
        choice && site.pastFlag && choice->is("If"))
      choices.insert(choice);
    for (const auto* cache : {&site.key, &site.value})
      if (*cache && !site.isCross) {
        if ((*cache)->writer)
          writers.insert((*cache)->writer);
        if (const auto batch = (*cache)->layout.axisOf('B'))
          addSymbols((*cache)->past->type().dim(*batch), batchSymbols);
      }
    if (site.isMatched() && !site.isCross && site.node->operand(0)->type().hasRank())
      addSymbols(site.node->operand(0)->type().dim(2), stepSymbols);
  }
  stepSymbols.append(batchSymbols);
  const llvm::DenseSet<const Value*> tokens = tokenInputsOf(graph);
  llvm::DenseSet<const Value*> rows;
  for (const AttentionSite& site : sites)
    for (const auto* cache : {&site.key, &site.value})
      if (*cache && !site.isCross)
        rows.insert((*cache)->past);
  // Cosines, sines, and masks for each token may be inputs, too: an input is the same at every step
  // only if its extents do not count tokens.
  const auto countsTokens = [&](const Dim& extent) {
    const auto isSteps = [&](const AttentionSite& site) {
      return site.isMatched() && !site.isCross &&
             site.node->operand(0)->type().dim(2).isKnownEqual(extent);
    };
    return extent.isUnknown() || llvm::any_of(sites, isSteps) ||
           llvm::any_of(extent.symbols(), [&](const std::string& symbol) {
             return !llvm::is_contained(batchSymbols, symbol);
           });
  };
  const auto isData = [&](const Value& input) {
    if (tokens.contains(&input) || input.name() == "inputs_embeds")
      return true;
    return isFloatingPoint(input.type().elementType()) && input.type().hasRank() &&
           input.type().rank() > 2 && llvm::none_of(input.type().shape(), countsTokens);
  };
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    states[input.get()] = rows.contains(input.get()) ? State::Both
                          : isData(*input)           ? State::Data
                          : input->constant()        ? State::Constant
                                                     : State::Position;
  }
  visitGraph(graph);
}

void PositionFlow::visitGraph(const Graph& graph) {
  for (const Node& node : graph.nodes())
    visit(node);
}

State PositionFlow::of(const Value& value) const {
  const auto found = states.find(&value);
  return found == states.end() ? State::Constant : found->second;
}

/// Whether integers depend on more than the batch and the number of new tokens, which do not change
/// with the position of the step.
bool PositionFlow::countsEarlierRows(llvm::ArrayRef<Dim> integers) const {
  return llvm::any_of(integers, [&](const Dim& entry) {
    return entry.isUnknown() || llvm::any_of(entry.symbols(), [&](const std::string& symbol) {
             return !llvm::is_contained(stepSymbols, symbol);
           });
  });
}

State PositionFlow::ofMoved(const Node& node) const {
  State state = State::Constant;
  const MovementKind kind = *movementKind(node);
  for (const Use& use : node.operands()) {
    if (!use.value())
      continue;
    if (isMoved(use))
      state = joined(state, of(*use.value()));
    else if (kind == MovementKind::Slice || kind == MovementKind::Gather ||
             kind == MovementKind::PointGather || kind == MovementKind::Repeat)
      state = joined(state, of(*use.value()));
  }
  return state;
}

State PositionFlow::ofOperands(const Node& node) const {
  State state = State::Constant;
  for (const Use& use : node.operands())
    if (use.value())
      state = joined(state, of(*use.value()));
  for (const Graph* nested : node.subgraphs())
    addCaptured(*nested, node.graph(), state, *this);
  return state;
}

void PositionFlow::visitBranches(const Node& node) {
  for (const Graph* branch : node.subgraphs()) {
    visitGraph(*branch);
    for (unsigned i = 0; i < node.results().size(); ++i)
      states[&node.result(i)] = joined(of(node.result(i)), of(*branch->outputs()[i]));
  }
}

void PositionFlow::visit(const Node& node) {
  if (choices.contains(&node))
    return visitBranches(node);
  State state = attentions.contains(&node) ? State::Data
                : writers.contains(&node)  ? State::Both
                : movementKind(node)       ? ofMoved(node)
                                           : ofOperands(node);
  // Extents, and values computed from them, carry no other information.
  const bool isExtent = node.is("Shape") || node.is("Size");
  for (const Value& result : node.results()) {
    State own = state;
    if (const auto known = result.knownIntegers())
      own = countsEarlierRows(*known) ? State::Position : State::Constant;
    else if (isExtent)
      own = State::Position;
    states[&result] = own;
  }
}

const Node* PositionFlow::entry(const Value& value) const {
  llvm::DenseSet<const Value*> seen;
  llvm::SmallVector<const Value*, 8> pending(1, &value);
  const Node* found = nullptr;
  while (!pending.empty()) {
    const Value* each = pending.pop_back_val();
    const Node* node = each->producer();
    if (!node || !seen.insert(each).second || attentions.contains(node))
      continue;
    bool isEntry = true;
    for (const Use& use : node->operands())
      if (use.value() && of(*use.value()) == State::Both) {
        isEntry = false;
        pending.push_back(use.value());
      }
    const bool isBefore =
        !found || (&node->graph() == &found->graph() && node->comesBefore(*found));
    if (isEntry && isBefore)
      found = node;
  }
  return found;
}

} // namespace kvopt::analysis
