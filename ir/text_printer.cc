// The printer.
#include "ir/text_printer.h"

#include "ir/half.h"

#include "llvm/ADT/StringExtras.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>

namespace kvopt {
namespace {

bool isIdentifier(llvm::StringRef name) {
  if (name.empty() || llvm::isDigit(name[0]))
    return false;
  return llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_'; });
}

std::string quoted(llvm::StringRef text) {
  std::string result = "\"";
  for (char character : text) {
    auto code = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\')
      result += std::string("\\") + character;
    else if (character == '\n')
      result += "\\n";
    else if (code < 0x20 || code == 0x7f)
      result += fmt::format("\\x{:02x}", code);
    else
      result += character;
  }
  return result + '"';
}

std::string nameText(llvm::StringRef name) {
  return isIdentifier(name) ? name.str() : quoted(name);
}

/// Always recognisable as a float, and read back to the same one.
template <class T> std::string floatText(T value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos)
    text += ".0";
  return text;
}

class Printer {
public:
  explicit Printer(const PrintOptions& printOptions) : options(printOptions) {}

  std::string take() { return std::move(out); }

  void model(const Model& printed) {
    out += fmt::format("<\n  ir_version: {},\n  opset_import: {}", printed.irVersion,
                       opsets(printed.opsets));
    auto text = [&](const char* key, const std::string& value) {
      if (!value.empty())
        out += fmt::format(",\n  {}: {}", key, quoted(value));
    };
    text("producer_name", printed.producerName);
    text("producer_version", printed.producerVersion);
    text("domain", printed.domain);
    if (printed.modelVersion != 0)
      out += fmt::format(",\n  model_version: {}", printed.modelVersion);
    text("doc_string", printed.docString);
    if (!printed.metadata.empty())
      out += ",\n  metadata_props: " + pairs(printed.metadata);
    out += "\n>\n";
    graph(printed.graph(), 0);
    out += '\n';
    for (const std::unique_ptr<Function>& each : printed.functions)
      function(*each);
  }

  void graph(const Graph& printed, unsigned indent) {
    out += nameText(printed.name().empty() ? llvm::StringRef("graph") : printed.name()) + " (";
    bool first = true;
    for (const std::unique_ptr<Value>& input : printed.inputs()) {
      separate(first);
      typedName(*input);
      if (input->initializer()) {
        out += " = ";
        contents(*input->initializer());
      }
    }
    out += ") => (";
    first = true;
    for (const Value* output : printed.outputs()) {
      separate(first);
      typedName(*output);
    }
    out += ")\n";
    initializers(printed, indent);
    out += std::string(indent, ' ') + "{\n";
    for (const Node& each : printed.nodes()) {
      out += std::string(indent + 2, ' ');
      node(each, indent + 2);
      out += '\n';
    }
    out += std::string(indent, ' ') + "}";
  }

  void node(const Node& printed, unsigned indent) {
    if (!printed.name().empty() || !printed.metadata().empty()) {
      out += "[" + nameText(printed.name());
      if (!printed.metadata().empty())
        out += ", " + pairs(printed.metadata());
      out += "] ";
    }
    bool first = true;
    for (const Value& result : printed.results()) {
      separate(first);
      out += result.isAbsent() ? "\"\"" : nameText(result.name());
    }
    out += " = ";
    if (!printed.op().isOnnx())
      out += printed.op().domain().str() + ".";
    out += nameText(printed.op().type());
    if (!printed.overload().empty())
      out += ":" + nameText(printed.overload());
    out += ' ';
    attributes(printed.attributes(), indent);
    out += '(';
    first = true;
    for (const Use& use : printed.operands()) {
      separate(first);
      out += use.value() ? nameText(use.value()->name()) : "\"\"";
    }
    out += ')';
    if (options.types)
      for (const Value& result : printed.results())
        out += "  # " + result.type().str();
  }

private:
  void separate(bool& first) {
    if (!first)
      out += ", ";
    first = false;
  }

  static std::string opsets(const OpsetImports& imports) {
    std::string text;
    for (const auto& [domain, version] : imports)
      text += fmt::format("{}{} : {}", text.empty() ? "[" : ", ", quoted(domain), version);
    return text.empty() ? "[]" : text + "]";
  }

  static std::string pairs(const Metadata& metadata) {
    std::string text;
    for (const auto& [key, value] : metadata)
      text += fmt::format("{}{}: {}", text.empty() ? "[" : ", ", quoted(key), quoted(value));
    return text + "]";
  }

  static std::string extentText(const Dim& extent) {
    if (extent.isUnknown() || extent.value())
      return extent.str();
    return nameText(extent.str());
  }

  /// No brackets are rank 0, empty brackets an unknown rank.
  static std::string typeText(const TensorType& type) {
    std::string text = onnxName(type.elementType()).str();
    if (!type.hasRank())
      return text + "[]";
    if (type.rank() == 0)
      return text;
    text += '[';
    for (size_t i = 0; i < type.rank(); ++i)
      text += (i ? "," : "") + extentText(type.shape()[i]);
    return text + ']';
  }

  void typedName(const Value& value) {
    if (value.type().elementType() != ElementType::Undefined &&
        elementTypeFromOnnxName(onnxName(value.type().elementType())))
      out += typeText(value.type()) + " ";
    out += nameText(value.name());
  }

  void initializers(const Graph& printed, unsigned indent) {
    bool first = true;
    for (const std::unique_ptr<Value>& value : printed.initializers()) {
      out += first ? std::string(indent, ' ') + "<\n" : ",\n";
      first = false;
      out += std::string(indent + 2, ' ');
      typedName(*value);
      if (value->initializer()) {
        out += " = ";
        contents(*value->initializer());
      }
    }
    if (!first)
      out += "\n" + std::string(indent, ' ') + ">\n";
  }

  void contents(const TensorData& tensor) {
    if (tensor.elementCount() > options.maxTensorElements) {
      out += "{…}";
      return;
    }
    auto bytes = tensor.bytes();
    if (!bytes) {
      llvm::consumeError(bytes.takeError());
      out += "{…}";
      return;
    }
    elements(tensor, *bytes);
  }

  void elements(const TensorData& tensor, std::span<const std::byte> bytes) {
    ElementType type = tensor.elementType();
    auto width = static_cast<int64_t>(byteWidth(type).value_or(0));
    auto list = [&](auto&& text) {
      out += '{';
      for (int64_t i = 0; i < tensor.elementCount(); ++i) {
        if (i)
          out += ", ";
        out += text(bytes.data() + i * width);
      }
      out += '}';
    };
    auto load = [](const std::byte* from, auto value) {
      std::memcpy(&value, from, sizeof value);
      return value;
    };
    auto whole = [&](auto zero) {
      list([&](const std::byte* at) { return fmt::format("{}", load(at, zero)); });
    };
    switch (type) {
    case ElementType::Float:
      return list([&](const std::byte* at) { return floatText(load(at, 0.0f)); });
    case ElementType::Double:
      return list([&](const std::byte* at) { return floatText(load(at, 0.0)); });
    case ElementType::Float16:
      return list([&](const std::byte* at) { return floatText(f16ToFloat(load(at, uint16_t{}))); });
    case ElementType::BFloat16:
      return list(
          [&](const std::byte* at) { return floatText(bf16ToFloat(load(at, uint16_t{}))); });
    case ElementType::Int8:
      return whole(int8_t{});
    case ElementType::Int16:
      return whole(int16_t{});
    case ElementType::Int32:
      return whole(int32_t{});
    case ElementType::Int64:
      return whole(int64_t{});
    case ElementType::UInt8:
    case ElementType::Bool:
      return whole(uint8_t{});
    case ElementType::UInt16:
      return whole(uint16_t{});
    case ElementType::UInt32:
      return whole(uint32_t{});
    case ElementType::UInt64:
      return whole(uint64_t{});
    default:
      out += '"' +
             llvm::toHex(llvm::StringRef(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                         /*LowerCase=*/true) +
             '"';
    }
  }

  void attributes(llvm::ArrayRef<NamedAttribute> list, unsigned indent) {
    if (list.empty())
      return;
    out += '<';
    bool first = true;
    for (const NamedAttribute& attribute : list) {
      separate(first);
      out += nameText(attribute.name);
      if (needsKind(attribute.value))
        out += ": " + attributeKindName(attribute.value.kind()).str();
      out += " = ";
      value(attribute.value, indent);
    }
    out += "> ";
  }

  /// Empty lists and references do not show their kind.
  static bool needsKind(const Attribute& attribute) {
    if (attribute.isReference())
      return attribute.kind() != AttributeKind::Undefined;
    switch (attribute.kind()) {
    case AttributeKind::Floats:
      return attribute.floats().empty();
    case AttributeKind::Ints:
      return attribute.ints().empty();
    case AttributeKind::Strings:
      return attribute.strings().empty();
    default:
      return false;
    }
  }

  template <class List, class Text> void list(const List& values, Text&& text) {
    out += '[';
    bool first = true;
    for (const auto& each : values) {
      separate(first);
      out += text(each);
    }
    out += ']';
  }

  void value(const Attribute& attribute, unsigned indent) {
    if (attribute.isReference()) {
      out += "@" + nameText(attribute.referencedName());
      return;
    }
    switch (attribute.kind()) {
    case AttributeKind::Float:
      out += floatText(attribute.floatValue());
      return;
    case AttributeKind::Int:
      out += fmt::format("{}", attribute.intValue());
      return;
    case AttributeKind::String:
      out += quoted(attribute.stringValue());
      return;
    case AttributeKind::Tensor:
      return tensor(*attribute.tensorValue());
    case AttributeKind::Floats:
      return list(attribute.floats(), [](float number) { return floatText(number); });
    case AttributeKind::Ints:
      return list(attribute.ints(), [](int64_t number) { return fmt::format("{}", number); });
    case AttributeKind::Strings:
      return list(attribute.strings(), [](const std::string& text) { return quoted(text); });
    case AttributeKind::Tensors:
      out += '[';
      for (size_t i = 0; i < attribute.tensors().size(); ++i) {
        if (i)
          out += ", ";
        tensor(*attribute.tensors()[i]);
      }
      out += ']';
      return;
    case AttributeKind::Graph:
    case AttributeKind::Graphs:
      for (const std::unique_ptr<Graph>& each : attribute.graphs())
        graph(*each, indent + 2);
      return;
    default:
      out += "{…}"; // carried, not interpreted
    }
  }

  void tensor(const TensorData& data) {
    out += typeText(TensorType::fixed(data.elementType(), data.shape())) + " ";
    contents(data);
  }

  void function(const Function& printed) {
    out += fmt::format("<\n  domain: {},\n  opset_import: {}", quoted(printed.domain),
                       opsets(printed.opsets));
    if (!printed.overload.empty())
      out += ",\n  overload: " + quoted(printed.overload);
    if (!printed.docString.empty())
      out += ",\n  doc_string: " + quoted(printed.docString);
    out += "\n>\n" + nameText(printed.name) + " ";
    bool first = true;
    for (const std::string& attribute : printed.attributes) {
      out += first ? "<" : ", ";
      first = false;
      out += nameText(attribute);
    }
    for (const NamedAttribute& attribute : printed.defaults) {
      out += first ? "<" : ", ";
      first = false;
      out +=
          nameText(attribute.name) + ": " + attributeKindName(attribute.value.kind()).str() + " = ";
      value(attribute.value, 0);
    }
    out += first ? "(" : "> (";
    first = true;
    for (const std::unique_ptr<Value>& input : printed.body.inputs()) {
      separate(first);
      out += nameText(input->name());
    }
    out += ") => (";
    first = true;
    for (const Value* output : printed.body.outputs()) {
      separate(first);
      out += nameText(output->name());
    }
    out += ")\n{\n";
    for (const Node& each : printed.body.nodes()) {
      out += "  ";
      node(each, 2);
      out += '\n';
    }
    out += "}\n";
  }

  const PrintOptions& options;
  std::string out;
};

} // namespace

std::string printText(const Model& model, const PrintOptions& options) {
  Printer printer(options);
  printer.model(model);
  return printer.take();
}

std::string printText(const Graph& graph, const PrintOptions& options) {
  Printer printer(options);
  printer.graph(graph, 0);
  return printer.take();
}

std::string printText(const Node& node) {
  PrintOptions options;
  options.maxTensorElements = 16;
  Printer printer(options);
  printer.node(node, 0);
  return printer.take();
}

} // namespace kvopt
