// Conversion of caches to quantized caches.
#include "passes/targets/ort_gqa/code_caches.h"

#include "ir/ops/contrib/group_query_operands.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace kvopt::targets {
using namespace ir;

namespace {

constexpr const char* groupQueryAttention = "com.microsoft::GroupQueryAttention";

class CodeCaches {
public:
  CodeCaches(Model& edited, Manifest& described, const CodeScales& given)
      : graph(edited.graph()), manifest(described), scales(given) {}

  llvm::Error run() {
    for (Node& node : graph.nodes()) {
      for (const NamedAttribute& attribute : node.attributes())
        if (!attribute.value.graphs().empty())
          return unsupported("{}: caches that a branch updates cannot be quantized",
                             node.describe());
      const bool hasCaches = node.is(groupQueryAttention) && node.operand(gqa::PastKey) &&
                             node.operand(gqa::PastKey + 1) && node.results().size() >= 3;
      if (hasCaches)
        if (llvm::Error error = edit(node))
          return error;
    }
    // Codes with column scales cannot be rotated like the rows that they represent.
    manifest.rotations.reset();
    for (ManifestCache& cache : manifest.caches)
      cache.rotation = std::nullopt;
    return inferShapes(graph);
  }

private:
  llvm::Error edit(Node& node) {
    const int64_t groups = node.intAttr("kv_num_heads", 0);
    llvm::SmallVector<Value*, 14> operands;
    for (const Use& use : node.operands())
      operands.push_back(use.value());
    operands.resize(gqa::KeyScale + 2, nullptr);
    for (unsigned side : {0u, 1u}) {
      Value& past = *operands[gqa::PastKey + side];
      const auto found = scales.ofPast.find(past.name().str());
      if (found == scales.ofPast.end())
        return unsupported("{}: there are no scales for the rows of '{}'", node.describe(),
                           past.name());
      for (const Use& use : past.uses())
        if (!use.user().is(groupQueryAttention) && !use.user().is("Shape"))
          return unsupported("the cache '{}' is also read by {}", past.name(),
                             use.user().describe());
      const std::vector<float>& numbers = found->second;
      const int64_t width = static_cast<int64_t>(numbers.size()) / groups;
      std::vector<std::byte> bytes(numbers.size() * sizeof(float));
      std::memcpy(bytes.data(), numbers.data(), bytes.size());
      auto tensor = makeTensor(ElementType::Float, {groups, width}, std::move(bytes));
      if (!tensor)
        return tensor.takeError();
      operands[gqa::KeyScale + side] =
          &graph.addConstant(side == 0 ? "k_scale" : "v_scale", *tensor);
      store(past, node.result(1 + side), width);
    }
    node.setOperands(operands);
    node.setAttribute("k_quant_type", Attribute::ofString("PER_CHANNEL"));
    node.setAttribute("v_quant_type", Attribute::ofString("PER_CHANNEL"));
    node.setAttribute("kv_cache_bit_width", Attribute::ofInt(scales.bits));
    return llvm::Error::success();
  }

  void store(Value& past, Value& present, int64_t width) {
    const bool isPacked = scales.bits == 4;
    const ElementType element = isPacked ? ElementType::UInt8 : ElementType::Int8;
    const int64_t columns = isPacked ? (width + 1) / 2 : width;
    for (Value* value : {&past, &present}) {
      const TensorType& type = value->type();
      Shape shape(type.shape().begin(), type.shape().end());
      shape.back() = Dim::fixed(columns);
      value->setType(TensorType(element, std::move(shape)));
    }
    for (ManifestCache& cache : manifest.caches)
      if (cache.past == past.name()) {
        cache.dtype = element;
        cache.shape.back() = columns;
      }
  }

  Graph& graph;
  Manifest& manifest;
  const CodeScales& scales;
};

} // namespace

llvm::Error keepCodes(Model& model, Manifest& manifest, const CodeScales& scales) {
  if (llvm::Error error = CodeCaches(model, manifest, scales).run())
    return error;
  model.setMetadata(manifestKey, manifest.json());
  return llvm::Error::success();
}

} // namespace kvopt::targets
