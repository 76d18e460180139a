// Printer of ONNX's textual syntax.
#include "ir/text/printer.h"

#include "ir/manifest/written_claim.h"
#include "ir/op.h"
#include "ir/text/names.h"
#include "ir/text/types.h"
#include "ir/text/values.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringExtras.h"

namespace kvopt::ir {
namespace {

constexpr const char* leftOut = "{…}";
/// Lists of inputs, outputs and attributes that would exceed this column have one entry per line.
constexpr size_t lineColumns = 100;

std::string typedName(const Value& value) {
  std::string type = typeText(value.type());
  return (type.empty() ? type : type + " ") + nameText(value.name());
}

template <typename Range, typename Text>
std::string listText(const Range& range, Text elementText) {
  std::string text = "[";
  for (const auto& element : range) {
    text += text.size() == 1 ? "" : ", ";
    text += elementText(element);
  }
  return text + ']';
}

/// Whether the kind must be printed, because the value alone would be read as another kind.
bool isKindStated(const NamedAttribute& attribute, const Node* holder) {
  const Attribute& value = attribute.value;
  AttributeKind kind = value.kind();
  if (value.isReference())
    return kind != AttributeKind::Undefined;
  const OpDef* definition = holder ? holder->definition() : nullptr;
  const FormalAttribute* formal = definition ? definition->findAttribute(attribute.name) : nullptr;
  AttributeKind defined = formal ? formal->kind : AttributeKind::Undefined;
  switch (kind) {
  case AttributeKind::Int: // the reader converts it to the kind in the definition
    return defined == AttributeKind::Float;
  case AttributeKind::Floats:
    return value.floats().empty();
  case AttributeKind::Ints:
    return value.ints().empty() || defined == AttributeKind::Floats;
  case AttributeKind::Strings:
    return value.strings().empty();
  case AttributeKind::Tensors:
    return value.tensors().empty();
  case AttributeKind::Graphs:
    return value.graphs().empty();
  default:
    return false;
  }
}

class Printer {
public:
  explicit Printer(const PrintOptions& printOptions, bool oneLine = false)
      : options(printOptions), inlined(oneLine) {}

  void print(const Model& model);
  void print(const Function& function);
  void print(const Graph& graph);
  void print(const Node& node);
  std::string take() { return std::move(out); }

private:
  void newLine() { out += '\n' + std::string(indent * 2, ' '); }
  size_t column() const { return out.size() - (out.rfind('\n') + 1); }
  void printHeader(llvm::ArrayRef<std::string> entries);
  void printEntries(const char* open, llvm::ArrayRef<std::string> entries, const char* close);
  std::vector<std::string> declarations(const Graph& graph, bool function) const;
  void printDeclarations(const Graph& graph, bool function);
  void printNodes(const Graph& graph);
  void printResultTypes(const Node& node);
  void printAttributes(const Node& node);
  void printAttribute(const NamedAttribute& attribute, const Node* holder);
  void printValue(const Attribute& attribute);
  std::string tensorText(const TensorData& tensor) const;

  const PrintOptions& options;
  bool inlined;
  unsigned indent = 0;
  std::string out;
};

/// Whether the default of an input is printed next to it, which requires that the input's type
/// determines the type of the literal.
bool isDefaultInline(const Value& input) {
  if (!input.initializer())
    return false;
  const TensorData& data = *input.initializer();
  return input.type() == TensorType::fixed(data.elementType(), data.shape());
}

std::string Printer::tensorText(const TensorData& tensor) const {
  return typeText(TensorType::fixed(tensor.elementType(), tensor.shape())) + " " +
         tensorLiteralText(tensor, options.maxTensorElements);
}

void Printer::print(const Model& model) {
  std::vector<std::string> header = {formatted("ir_version: {}", model.irVersion),
                                     "opset_import: " + opsetsText(model.opsets)};
  auto text = [&](const char* key, const std::string& value) {
    if (!value.empty())
      header.push_back(formatted("{}: {}", key, quotedText(value)));
  };
  text("producer_name", model.producerName);
  text("producer_version", model.producerVersion);
  text("domain", model.domain);
  if (model.modelVersion != 0)
    header.push_back(formatted("model_version: {}", model.modelVersion));
  text("doc_string", model.docString);
  if (const Metadata metadata = writtenMetadata(model); !metadata.empty())
    header.push_back("metadata_props: " + pairsText(metadata));
  printHeader(header);
  print(model.graph());
  out += '\n';
  for (const std::unique_ptr<Function>& function : model.functions) {
    out += '\n';
    print(*function);
    out += '\n';
  }
}

void Printer::print(const Function& function) {
  std::vector<std::string> header = {"domain: " + quotedText(function.domain),
                                     "opset_import: " + opsetsText(function.opsets)};
  if (!function.overload.empty())
    header.push_back("overload: " + quotedText(function.overload));
  if (!function.docString.empty())
    header.push_back("doc_string: " + quotedText(function.docString));
  printHeader(header);
  out += nameText(function.name);
  if (!function.attributes.empty() || !function.defaults.empty()) {
    out += " <";
    const char* separator = "";
    for (const std::string& attribute : function.attributes) {
      out += std::exchange(separator, ", ") + nameText(attribute);
    }
    for (const NamedAttribute& attribute : function.defaults) {
      out += std::exchange(separator, ", ");
      printAttribute(attribute, nullptr);
    }
    out += '>';
  }
  std::vector<std::string> inputs, outputs;
  for (const std::unique_ptr<Value>& input : function.body.inputs())
    inputs.push_back(typedName(*input));
  for (const Value* output : function.body.outputs())
    outputs.push_back(nameText(output->name()));
  printEntries(" (", inputs, ")");
  printEntries(" => (", outputs, ")");
  printDeclarations(function.body, /*function=*/true);
  printNodes(function.body);
}

void Printer::print(const Graph& graph) {
  out += nameText(graph.name());
  std::vector<std::string> inputs, outputs;
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    inputs.push_back(typedName(*input));
    if (isDefaultInline(*input))
      inputs.back() += " = " + tensorLiteralText(*input->initializer(), options.maxTensorElements);
  }
  for (const Value* output : graph.outputs())
    outputs.push_back(typedName(*output));
  printEntries(" (", inputs, ")");
  printEntries(" => (", outputs, ")");
  if (inlined) {
    out += formatted(" {}", leftOut);
    return;
  }
  printDeclarations(graph, /*function=*/false);
  printNodes(graph);
}

void Printer::printHeader(llvm::ArrayRef<std::string> entries) {
  out += "<\n";
  for (size_t i = 0; i < entries.size(); ++i)
    out += "  " + entries[i] + (i + 1 == entries.size() ? "\n" : ",\n");
  out += ">\n";
}

void Printer::printEntries(const char* open, llvm::ArrayRef<std::string> entries,
                           const char* close) {
  out += open;
  size_t width = column();
  for (const std::string& entry : entries)
    width += entry.size() + 2;
  bool wrapped = !inlined && width > lineColumns && entries.size() > 1;
  ++indent;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (wrapped)
      newLine();
    out += entries[i];
    if (i + 1 != entries.size())
      out += wrapped ? "," : ", ";
  }
  --indent;
  out += close;
}

std::vector<std::string> Printer::declarations(const Graph& graph, bool function) const {
  std::vector<std::string> lines;
  auto declareData = [&](const Value& value) {
    const TensorData& data = *value.initializer();
    TensorType type = TensorType::fixed(data.elementType(), data.shape());
    lines.push_back(formatted("{} {} = {}", typeText(type), nameText(value.name()),
                              tensorLiteralText(data, options.maxTensorElements)));
  };
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->initializer() && !isDefaultInline(*input))
      declareData(*input);
  for (const std::unique_ptr<Value>& value : graph.initializers()) {
    if (value->initializer())
      declareData(*value);
    else
      lines.push_back(formatted("sparse_tensor({}) {} = {}", typeText(value->type()),
                                nameText(value->name()), leftOut));
  }
  if (!options.declareTypes)
    return lines;
  // Outputs of a graph have their types in its list of outputs.
  llvm::SmallPtrSet<const Value*, 8> listed;
  if (!function)
    listed.insert(graph.outputs().begin(), graph.outputs().end());
  for (const Node& node : graph.nodes())
    for (const Value& result : node.results())
      if (!result.isAbsent() && !listed.count(&result) && !typeText(result.type()).empty())
        lines.push_back(typedName(result));
  return lines;
}

void Printer::printDeclarations(const Graph& graph, bool function) {
  std::vector<std::string> lines = declarations(graph, function);
  if (lines.empty())
    return;
  newLine();
  out += '<';
  ++indent;
  for (size_t i = 0; i < lines.size(); ++i) {
    newLine();
    out += lines[i];
    if (i + 1 != lines.size())
      out += ',';
  }
  --indent;
  newLine();
  out += '>';
}

void Printer::printNodes(const Graph& graph) {
  newLine();
  out += '{';
  ++indent;
  for (const Node& node : graph.nodes()) {
    newLine();
    print(node);
    if (options.types)
      printResultTypes(node);
  }
  --indent;
  newLine();
  out += '}';
}

void Printer::printResultTypes(const Node& node) {
  std::string types;
  for (const Value& result : node.results()) {
    types += types.empty() ? "  // " : ", ";
    std::string type = typeText(result.type());
    types += type.empty() ? "?" : commentText(std::move(type));
  }
  out += types;
}

void Printer::print(const Node& node) {
  if (!node.name().empty())
    out += "[" + nameText(node.name()) + "] ";
  const char* separator = "";
  for (const Value& result : node.results())
    out += std::exchange(separator, ", ") + nameText(result.name());
  if (!node.results().empty())
    out += ' ';
  out += "= " + operatorText(node.op());
  if (!node.overload().empty())
    out += ":" + nameText(node.overload());
  printAttributes(node);
  out += " (";
  separator = "";
  for (const Use& operand : node.operands())
    out += std::exchange(separator, ", ") +
           nameText(operand.value() ? operand.value()->name() : llvm::StringRef());
  out += ')';
}

void Printer::printAttributes(const Node& node) {
  if (node.attributes().empty() && node.metadata().empty())
    return;
  out += " <";
  const char* separator = "";
  ++indent;
  for (const NamedAttribute& attribute : node.attributes()) {
    out += std::exchange(separator, ", ");
    printAttribute(attribute, &node);
  }
  --indent;
  if (!node.metadata().empty())
    out += std::string(separator) + "metadata_props: " + pairsText(node.metadata());
  out += '>';
}

void Printer::printAttribute(const NamedAttribute& attribute, const Node* holder) {
  out += nameText(attribute.name);
  if (isKindStated(attribute, holder))
    out += ": " + attributeKindName(attribute.value.kind()).str();
  out += " = ";
  printValue(attribute.value);
}

void Printer::printValue(const Attribute& attribute) {
  if (attribute.isReference()) {
    out += "@" + nameText(attribute.referencedName());
    return;
  }
  auto tensor = [&](const TensorRef& data) { return tensorText(*data); };
  switch (attribute.kind()) {
  case AttributeKind::Float:
    out += floatText(attribute.floatValue());
    break;
  case AttributeKind::Int:
    out += std::to_string(attribute.intValue());
    break;
  case AttributeKind::String:
    out += quotedText(attribute.stringValue());
    break;
  case AttributeKind::Tensor:
    out += tensorText(*attribute.tensorValue());
    break;
  case AttributeKind::Floats:
    out += listText(attribute.floats(), floatText);
    break;
  case AttributeKind::Ints:
    out += listText(attribute.ints(), [](int64_t value) { return std::to_string(value); });
    break;
  case AttributeKind::Strings:
    out += listText(attribute.strings(), [](const std::string& text) { return quotedText(text); });
    break;
  case AttributeKind::Tensors:
    out += listText(attribute.tensors(), tensor);
    break;
  case AttributeKind::Graph:
    print(*attribute.graphs().front());
    break;
  case AttributeKind::Graphs: {
    const char* separator = "";
    out += '[';
    for (const std::unique_ptr<Graph>& graph : attribute.graphs()) {
      out += std::exchange(separator, ", ");
      print(*graph);
    }
    out += ']';
    break;
  }
  default:
    out += leftOut;
    break;
  }
}

} // namespace

std::string printText(const Model& model, const PrintOptions& options) {
  Printer printer(options);
  printer.print(model);
  return printer.take();
}

std::string printText(const Graph& graph, const PrintOptions& options) {
  Printer printer(options);
  printer.print(graph);
  return printer.take();
}

std::string printText(const Node& node) {
  PrintOptions options;
  options.maxTensorElements = 16;
  Printer printer(options, /*oneLine=*/true);
  printer.print(node);
  return commentText(printer.take());
}

} // namespace kvopt::ir
