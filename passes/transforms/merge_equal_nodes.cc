// Merges small equal constants, and nodes that compute the same from the same operands.
//
//   before   a = Shape (x)   b = Shape (x)   c = Constant <value = 1> ()   d = Constant <value = 1>
//   () after    a = Shape (x)                   c = Constant <value = 1> ()
#include "ir/op.h"
#include "ir/random.h"
#include "passes/pass.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

namespace kvopt::transforms {
using namespace ir;
using namespace passes;

namespace {

/// Maximum size of constants that are compared, in bytes. Weights are never read.
constexpr int64_t mostMergedBytes = 1024;

/// The contents of a small constant as a text; nullopt for others.
std::optional<std::string> textOf(const TensorData& data) {
  const auto size = data.byteSize();
  if (!size || *size > mostMergedBytes)
    return std::nullopt;
  auto bytes = data.bytes();
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return std::nullopt;
  }
  std::string text = formatted("{} [", static_cast<int>(data.elementType()));
  for (int64_t extent : data.shape())
    text += formatted("{},", extent);
  text += ']';
  text.append(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  return text;
}

/// An attribute as a text; nullopt for kinds that are not compared.
std::optional<std::string> textOf(const NamedAttribute& attribute) {
  const Attribute& value = attribute.value;
  if (value.isReference())
    return std::nullopt;
  const auto text = [&](auto content) {
    return formatted("{} {} {} {};", attribute.name, static_cast<int>(value.kind()), content.size(),
                     content);
  };
  switch (value.kind()) {
  case AttributeKind::Float:
    return text(formatted("{:a}", value.floatValue()));
  case AttributeKind::Int:
    return text(formatted("{}", value.intValue()));
  case AttributeKind::String:
    return text(value.stringValue().str());
  case AttributeKind::Ints: {
    std::string list;
    for (int64_t number : value.ints())
      list += formatted("{},", number);
    return text(list);
  }
  case AttributeKind::Tensor: {
    auto contents = textOf(*value.tensorValue());
    return contents ? std::optional(text(*contents)) : std::nullopt;
  }
  default:
    return std::nullopt;
  }
}

class MergeEqualNodes final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    int64_t merged = 0;
    forEachGraph(model.graph(), [&](Graph& graph) { merged += merge(graph); });
    if (merged != 0)
      context.count("merge-equal-nodes", "merged", merged);
    return llvm::Error::success();
  }

private:
  static int64_t merge(Graph& graph) {
    int64_t merged = 0;
    llvm::StringMap<Value*> constants;
    for (const auto& initializer : graph.initializers())
      if (auto text = textOfConstant(*initializer))
        merged += mergeInto(constants, *text, *initializer);
    llvm::StringMap<Node*> nodes;
    for (Node& node : llvm::make_early_inc_range(graph.nodes())) {
      if (node.results().size() == 1 && node.result().constant()) {
        if (auto text = textOfConstant(node.result()))
          merged += mergeInto(constants, *text, node.result());
      } else if (auto text = textOfNode(node)) {
        const auto [first, isNew] = nodes.try_emplace(*text, &node);
        if (isNew)
          continue;
        for (unsigned i = 0; i < node.results().size(); ++i)
          node.result(i).replaceAllUsesWith(first->second->result(i));
        graph.erase(node);
        ++merged;
      }
    }
    return merged;
  }

  static int64_t mergeInto(llvm::StringMap<Value*>& constants, llvm::StringRef text, Value& value) {
    const auto [first, isNew] = constants.try_emplace(text, &value);
    if (isNew || !value.hasUses())
      return 0;
    value.replaceAllUsesWith(*first->second);
    return 1;
  }

  /// Constants with the same text are equal; nullopt for those that must stay.
  static std::optional<std::string> textOfConstant(const Value& value) {
    if (!value.constant() || value.isReplaceable() || value.isGraphOutput())
      return std::nullopt;
    return textOf(*value.constant());
  }

  /// Nodes with the same text have equal results; nullopt for those that must stay.
  static std::optional<std::string> textOfNode(const Node& node) {
    if (!node.definition() || !node.overload().empty() || node.op().domain() == kvoptDomain ||
        isRandom(node.op()) || !node.subgraphs().empty() || node.operands().empty() ||
        llvm::any_of(node.results(), [](const Value& result) { return result.isGraphOutput(); }))
      return std::nullopt;
    std::string text = node.op().str();
    for (const Use& use : node.operands())
      text += formatted(" {}", static_cast<const void*>(use.value()));
    text += " ->";
    for (const Value& result : node.results())
      text += result.isAbsent() ? " -" : " +";
    llvm::SmallVector<std::string, 4> attributes;
    for (const NamedAttribute& attribute : node.attributes()) {
      auto written = textOf(attribute);
      if (!written)
        return std::nullopt;
      attributes.push_back(std::move(*written));
    }
    llvm::sort(attributes);
    for (const std::string& attribute : attributes)
      text += attribute;
    return text;
  }
};

} // namespace

void register_merge_equal_nodes(PassRegistry& registry) {
  registry.add({"merge-equal-nodes",
                "Merges small equal constants, and nodes that compute the same.",
                {},
                [](const PassOptions&) -> llvm::Expected<std::unique_ptr<Pass>> {
                  return std::make_unique<MergeEqualNodes>();
                }});
}

} // namespace kvopt::transforms
