// Operators and constants of a region that the argument covers.
#include "check/regions/size_argument.h"

#include "check/arithmetic/thresholds.h"
#include "ir/model.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {
namespace {

/// The scope has all numbers of rows, earlier and new tokens up to this.
constexpr int64_t alwaysCovered = 3;

/// Whether an operator treats all places of an axis alike. PagedAttention and forms of
/// GroupQueryAttention have no definition, and the rules of Pad and OneHot do not note where their
/// results change with a size.
bool isUniform(const ir::Node& node, meaning::OperatorFacts& operators) {
  return node.operands().empty() || node.is("com.microsoft::PagedAttention") ||
         node.is("com.microsoft::GroupQueryAttention") ||
         (operators.of(node).isUniform && !node.is("Pad") && !node.is("OneHot"));
}

bool isComparison(const ir::Node& node) {
  static constexpr const char* names[] = {"Less", "LessOrEqual", "Greater", "GreaterOrEqual",
                                          "Equal"};
  return node.op().isOnnx() && llvm::is_contained(names, node.op().type());
}

std::string beyond(const ir::Node& node, int64_t number) {
  return node.describe() + " has the constant " + std::to_string(number) +
         ", which is beyond the scope";
}

bool isFar(int64_t number, const std::set<int64_t>& covered) {
  const int64_t size = std::abs(number);
  return size > alwaysCovered && size < unlimited && !covered.count(size);
}

std::string gapOf(const ir::Node& node, const std::set<int64_t>& covered) {
  for (const char* name : {"local_window_size", "window"}) {
    const int64_t window = node.intAttr(name, 0);
    if (isFar(window, covered))
      return beyond(node, window);
  }
  return "";
}

/// The gap of a function and of those that it calls, which `caller` calls.
std::string gapOfCalls(const ir::Model& model, const ir::Node& caller, const ir::Function& function,
                       const std::set<int64_t>& covered, meaning::OperatorFacts& operators) {
  llvm::SmallVector<const ir::Graph*, 8> called{&function.body};
  for (size_t i = 0; i < called.size(); ++i)
    for (const ir::Node& inner : called[i]->nodes()) {
      const ir::Function* nested = model.findFunction(inner);
      if (nested && !llvm::is_contained(called, &nested->body))
        called.push_back(&nested->body);
      const bool isBranch = !nested && inner.is("If");
      if (isBranch)
        llvm::append_range(called, inner.subgraphs());
      if (!nested && !isBranch && !isUniform(inner, operators))
        return caller.describe() + " calls " + inner.op().str() +
               ", which has no argument for all sizes";
      if (std::string gap = gapOf(inner, covered); !gap.empty())
        return gap;
    }
  return "";
}

/// Adds the constants with which the nodes of a graph compare integers.
void addCompared(const ir::Graph& graph, std::set<int64_t>& constants) {
  for (const ir::Node& node : graph.nodes()) {
    for (const char* name : {"local_window_size", "window"})
      if (const int64_t window = node.intAttr(name, 0); window > 0)
        constants.insert(window);
    if (isComparison(node))
      for (const ir::Use& use : node.operands())
        if (const auto data = use.value() ? use.value()->constantRef() : nullptr)
          if (const auto numbers = ir::integerValues(*data, 64))
            for (int64_t number : *numbers)
              if (std::abs(number) > 1 && std::abs(number) < unlimited)
                constants.insert(std::abs(number));
    for (const ir::Graph* inner : node.subgraphs())
      addCompared(*inner, constants);
  }
}

} // namespace

std::set<int64_t> comparedConstants(const ir::Model& model) {
  std::set<int64_t> constants;
  addCompared(model.graph(), constants);
  for (const auto& function : model.functions)
    addCompared(function->body, constants);
  return constants;
}

std::string sizeArgumentGap(const ir::Model& model, llvm::ArrayRef<const ir::Node*> nodes,
                            const std::set<int64_t>& covered, meaning::OperatorFacts& operators) {
  for (const ir::Node* node : nodes) {
    if (std::string gap = gapOf(*node, covered); !gap.empty())
      return gap;
    const ir::Function* function = model.findFunction(*node);
    if (!function) {
      if (!isUniform(*node, operators))
        return node->describe() + " has no argument for all sizes";
      continue;
    }
    if (std::string gap = gapOfCalls(model, *node, *function, covered, operators); !gap.empty())
      return gap;
  }
  return "";
}

} // namespace kvopt::check
