// Checks of a manifest against its graph.
#include "ir/manifest/manifest_check.h"

#include "ir/graph.h"
#include "ir/manifest/overwritten_pasts.h"
#include "ir/rows/row_code.h"
#include "support/diagnostic.h"

#include <algorithm>
#include <map>

namespace kvopt::ir {
namespace {

/// A process addresses at most 2^47 bytes.
constexpr int64_t maxBytes = int64_t{1} << 47;

template <class... Values>
DiagnosticBuilder contradiction(llvm::StringRef name,
                                FormatPattern<std::type_identity_t<Values>...> pattern,
                                const Values&... values) {
  return invalid("the manifest contradicts the model: {}", formattedAs(pattern.text, values...))
      .value(name);
}

/// JSON has U+FFFD for the bytes of a name that is not UTF-8. Such a name finds no value, and the
/// driver of the cache reports it.
bool isReplaced(llvm::StringRef name) { return name.contains("\xEF\xBF\xBD"); }

class Check {
public:
  Check(const Manifest& checked, const Graph& described) : manifest(checked), graph(described) {}

  llvm::Error run() const {
    for (const ManifestCache& cache : manifest.caches)
      if (llvm::Error error = checkCache(cache))
        return error;
    for (const ManifestLength& length : manifest.lengths)
      if (llvm::Error error = checkInput(length.input, length.dtype, length.shape))
        return error;
    for (const ManifestInput& input : manifest.inputs)
      if (llvm::Error error = checkInput(input.input, input.dtype, input.shape))
        return error;
    for (const std::string& mask : manifest.unpadded)
      if (llvm::Error error = checkUnpadded(mask))
        return error;
    if (llvm::Error error = checkScales())
      return error;
    return checkReorder();
  }

private:
  llvm::Error checkUnpadded(const std::string& mask) const {
    const Value* input = graph.findValue(mask);
    if (!input || !input->isGraphInput())
      return contradiction(mask, "there is no such input");
    const ElementType element = input->type().elementType();
    if (!isInteger(element) && element != ElementType::Bool && element != ElementType::Undefined)
      return contradiction(mask, "it has element type {}, neither an integer nor bool",
                           dtypeName(element));
    return llvm::Error::success();
  }

  /// Each cache of scales is kept like one of the same layer that holds the codes.
  llvm::Error checkScales() const {
    std::map<std::pair<int64_t, CacheRole>, const ManifestCache*> codes;
    for (const ManifestCache& cache : manifest.caches)
      if (rowCodeOf(cache.dtype))
        codes.try_emplace({cache.layer, scaleRole(cache.role)}, &cache);
    for (const ManifestCache& cache : manifest.caches) {
      if (!isScale(cache.role))
        continue;
      const auto found = codes.find({cache.layer, cache.role});
      if (found == codes.end())
        return contradiction(cache.past, "it holds scales, but no cache of layer {} holds codes",
                             cache.layer);
      const ManifestCache& scaled = *found->second;
      if (scaled.storage.index() != cache.storage.index() ||
          scaled.isOneBuffer() != cache.isOneBuffer() ||
          scaled.blocks().size() != cache.blocks().size() ||
          scaled.sequenceAxis != cache.sequenceAxis || scaled.shape.size() != cache.shape.size())
        return contradiction(cache.past, "it holds the scales of '{}', but is not kept like it",
                             scaled.past);
    }
    return llvm::Error::success();
  }

  /// Numbers of batch rows.
  llvm::Error checkReorder() const {
    if (manifest.reorder.empty())
      return llvm::Error::success();
    const Value* input = graph.findValue(manifest.reorder);
    const bool isNarrow = input && input->type().elementType() == ElementType::Int32;
    return checkInput(manifest.reorder, isNarrow ? ElementType::Int32 : ElementType::Int64,
                      {std::string("batch")});
  }

  /// The extents may differ along axis `free`.
  static llvm::Error checkType(const Value& value, ElementType element,
                               const std::vector<ManifestExtent>& shape,
                               std::optional<size_t> free = std::nullopt) {
    const TensorType& type = value.type();
    if (type.elementType() != ElementType::Undefined && type.elementType() != element)
      return contradiction(value.name(), "it has element type {}, not {}",
                           dtypeName(type.elementType()), dtypeName(element));
    if (!type.hasRank())
      return llvm::Error::success();
    if (type.rank() != shape.size())
      return contradiction(value.name(), "it has {} axes, not {}", type.rank(), shape.size());
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const auto* said = std::get_if<int64_t>(&shape[axis]);
      const std::optional<int64_t> declared = type.shape()[axis].value();
      if (said && declared && *said != *declared && axis != free)
        return contradiction(value.name(), "axis {} has extent {}, not {}", axis, *declared, *said);
    }
    return llvm::Error::success();
  }

  llvm::Error checkInput(const std::string& name, ElementType element,
                         const std::vector<ManifestExtent>& shape,
                         std::optional<size_t> free = std::nullopt) const {
    const Value* input = graph.findValue(name);
    if (!input && isReplaced(name))
      return llvm::Error::success();
    if (!input || !input->isGraphInput())
      return contradiction(name, "there is no such input");
    return checkType(*input, element, shape, free);
  }

  llvm::Error checkCache(const ManifestCache& cache) const {
    const auto axis = static_cast<size_t>(cache.sequenceAxis);
    if (llvm::Error error = checkSize(cache))
      return error;
    // The blocks of a cache differ in length, and it is not an input itself.
    for (const std::string& block : cache.blocks())
      if (llvm::Error error = checkInput(block, cache.dtype, cache.shape, axis))
        return error;
    if (cache.isPool())
      return checkPool(cache);
    if (cache.blocks().empty() && !cache.past.empty()) {
      if (llvm::Error error = checkInput(cache.past, cache.dtype, cache.shape))
        return error;
      if (const Value* past = graph.findValue(cache.past))
        if (llvm::Error error = checkCapacity(cache, *past))
          return error;
    }
    return checkPresent(cache, cache.shape, axis);
  }

  /// Both are [blocks, block_size, heads, width], whatever the number of blocks.
  llvm::Error checkPool(const ManifestCache& cache) const {
    const std::vector<ManifestExtent> shape{std::string("pool_blocks"), manifest.blockSize,
                                            cache.shape[2], cache.shape[3]};
    if (llvm::Error error = checkInput(cache.past, cache.dtype, shape))
      return error;
    return checkPresent(cache, shape, std::nullopt);
  }

  llvm::Error checkPresent(const ManifestCache& cache, const std::vector<ManifestExtent>& shape,
                           std::optional<size_t> free) const {
    if (cache.present.empty())
      return llvm::Error::success();
    const Value* present = graph.findValue(cache.present);
    if (!present && isReplaced(cache.present))
      return llvm::Error::success();
    if (!present || !present->isGraphOutput())
      return contradiction(cache.present, "there is no such output");
    return checkType(*present, cache.dtype, shape, free);
  }

  /// All rows of a cache that is one buffer fit into it.
  llvm::Error checkCapacity(const ManifestCache& cache, const Value& past) const {
    const Dim rows = past.type().dim(cache.sequenceAxis);
    const bool holdsAll = std::holds_alternative<BufferCache>(cache.storage);
    if (holdsAll && rows.value() && manifest.capacityValue &&
        *rows.value() != *manifest.capacityValue)
      return contradiction(cache.past, "it has {} rows, but the capacity is {}", *rows.value(),
                           *manifest.capacityValue);
    return llvm::Error::success();
  }

  llvm::Error checkSize(const ManifestCache& cache) const {
    int64_t bytes = byteWidth(cache.dtype).value_or(1);
    for (const ManifestExtent& extent : cache.shape) {
      const auto* fixed = std::get_if<int64_t>(&extent);
      const auto* symbol = std::get_if<std::string>(&extent);
      const bool isCapacity = symbol && *symbol == manifest.capacitySymbol;
      const int64_t factor = fixed ? *fixed : isCapacity ? manifest.capacityValue.value_or(1) : 1;
      if (__builtin_mul_overflow(bytes, std::max<int64_t>(factor, 1), &bytes) || bytes > maxBytes)
        return invalid("manifest: the cache does not fit into memory").value(cache.past);
    }
    return llvm::Error::success();
  }

  const Manifest& manifest;
  const Graph& graph;
};

} // namespace

llvm::Error checkManifest(const Manifest& manifest, const Graph& graph) {
  if (llvm::Error error = Check(manifest, graph).run())
    return error;
  return checkOverwrittenPasts(manifest, graph);
}

} // namespace kvopt::ir
