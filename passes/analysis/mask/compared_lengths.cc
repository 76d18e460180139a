// Follows extents and integer inputs forward to the constants that they are compared with.
#include "passes/analysis/mask/compared_lengths.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "passes/analysis/movement/uniform_value.h"
#include "passes/pattern/explain.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <cmath>
#include <map>

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

/// Larger numbers are not lengths: exporters write them for "to the end" and "nothing".
constexpr double largestLength = 1 << 30;

/// Operators that are neither elementwise nor pure data movement.
constexpr const char* carriers[] = {"ArgMax", "ConstantOfShape", "CumSum",    "NonZero",   "Pad",
                                    "Range",  "ReduceMax",       "ReduceMin", "ReduceSum", "Trilu"};

/// `i - j < 4` is also written as `i < j + 4`. Factors are not lengths.
bool comparesItsOperands(const Node& node) {
  const std::optional<ElementFunction> function = elementFunction(node);
  return function == ElementFunction::Comparison || function == ElementFunction::Sum ||
         function == ElementFunction::Quotient || function == ElementFunction::Bound;
}

/// Whether elements of the results are still positions, lengths or mask entries if those of an
/// operand are. Angles of positions are not; logarithms of distances are, because they are used for
/// buckets.
bool keepsLengths(const Node& node) {
  const std::optional<ElementFunction> function = elementFunction(node);
  if (function == ElementFunction::Nonlinear)
    return node.is("Abs") || node.is("Log") || node.is("Sign");
  return function || movementKind(node) || llvm::is_contained(carriers, node.op().type());
}

/// Whether shape inference knows every element: the extents of heads and features.
bool isFixed(const Value& value) {
  const auto elements = value.knownIntegers();
  return elements &&
         llvm::all_of(*elements, [](const Dim& dim) { return dim.value().has_value(); });
}

class LengthFinder {
public:
  explicit LengthFinder(const std::vector<std::string>& tokens) {
    for (const std::string& token : tokens)
      tokenNames.insert(token);
  }

  void visitInputs(const Graph& graph, bool isFunction) {
    for (const std::unique_ptr<Value>& input : graph.inputs()) {
      const ElementType element = input->type().elementType();
      const bool isNumber = isInteger(element) || element == ElementType::Bool;
      if (isFunction || (isNumber && !tokenNames.contains(input->name())))
        lengths.insert(input.get());
    }
  }

  void visit(const Graph& graph) {
    for (const Node& node : graph.nodes()) {
      noteWindows(node);
      for (const NamedAttribute& attribute : node.attributes())
        for (const std::unique_ptr<Graph>& nested : attribute.value.graphs())
          visit(*nested);
      if (node.is("Slice") && !node.operands().empty() && node.operand(0))
        noteSlice(node);
      if (node.is("Trilu") && node.operands().size() > 1 && node.operand(1))
        noteConstant(*node.operand(1), node);
      const bool reads = llvm::any_of(node.operands(), [&](const Use& use) {
        return use.value() && lengths.count(use.value());
      });
      if (reads && comparesItsOperands(node))
        for (const Use& use : node.operands())
          if (use.value() && !lengths.count(use.value()))
            noteConstant(*use.value(), node);
      // Functions and control flow may pass on anything.
      const bool isOpaque = !node.definition() || !node.subgraphs().empty();
      if (node.is("Shape") || node.is("Size") || (reads && (keepsLengths(node) || isOpaque)))
        for (const Value& result : node.results())
          if (!isFixed(result))
            lengths.insert(&result);
    }
  }

  std::vector<ComparedLength> take() {
    std::vector<ComparedLength> result;
    for (auto& [tokens, where] : found)
      result.push_back({tokens, std::move(where)});
    return result;
  }

private:
  void note(double number, const Node& node) {
    const double size = std::floor(std::fabs(number));
    if (size >= 2 && size < largestLength)
      found.try_emplace(static_cast<int64_t>(size), labelOf(node));
  }

  void noteConstant(const Value& value, const Node& node) {
    if (std::optional<double> number = uniformValue(value))
      note(*number, node);
  }

  /// Slices along axes with fixed extents divide heads and features, not sequences.
  void noteSlice(const Node& node) {
    auto integersOf = [&](unsigned operand) {
      const Value* value = operand < node.operands().size() ? node.operand(operand) : nullptr;
      return value ? value->knownIntegers() : std::nullopt;
    };
    const TensorType& data = node.operand(0)->type();
    const auto axes = integersOf(3);
    auto isFixed = [&](size_t index) {
      if (!data.hasRank())
        return false;
      int64_t axis = static_cast<int64_t>(index);
      if (axes && index < axes->size())
        axis = (*axes)[index].value().value_or(axis);
      axis += axis < 0 ? data.rank() : 0;
      return axis >= 0 && axis < data.rank() &&
             data.dim(static_cast<unsigned>(axis)).value().has_value();
    };
    for (unsigned operand : {1u, 2u})
      if (const auto places = integersOf(operand))
        for (size_t i = 0; i < places->size(); ++i)
          if ((*places)[i].value() && !isFixed(i))
            note(static_cast<double>(*(*places)[i].value()), node);
  }

  void noteWindows(const Node& node) {
    for (const char* name : {"local_window_size", "window"})
      if (const Attribute* attribute = node.attribute(name))
        if (attribute->kind() == AttributeKind::Int && !attribute->isReference())
          note(static_cast<double>(attribute->intValue()), node);
  }

  llvm::StringSet<> tokenNames;
  llvm::DenseSet<const Value*> lengths;
  std::map<int64_t, std::string> found;
};

} // namespace

std::vector<ComparedLength> comparedLengths(const Model& model,
                                            const std::vector<std::string>& tokens) {
  LengthFinder finder(tokens);
  finder.visitInputs(model.graph(), /*isFunction=*/false);
  finder.visit(model.graph());
  for (const std::unique_ptr<Function>& function : model.functions) {
    // Bodies of kvopt's operators compare with the limits of codes, not with lengths.
    if (function->domain == kvoptDomain)
      continue;
    finder.visitInputs(function->body, /*isFunction=*/true);
    finder.visit(function->body);
  }
  return finder.take();
}

} // namespace kvopt::analysis
