// Checks of a manifest against the graph that it describes.
#include "runtime/session/interface_check.h"

#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

class InterfaceCheck {
public:
  InterfaceCheck(const Graph& checkedGraph, const Manifest& checkedManifest)
      : graph(checkedGraph), manifest(checkedManifest) {}

  llvm::Error run() {
    if (manifest.contract == CacheUpdate::State)
      return unsupported("sessions drive models only whose caches are inputs and outputs");
    for (const ManifestCache& cache : manifest.caches)
      if (llvm::Error error =
              cache.update() == CacheUpdate::Blocks ? checkBlocks(cache) : checkCache(cache))
        return error;
    for (const ManifestLength& length : manifest.lengths)
      if (llvm::Error error = checkLength(length))
        return error;
    return llvm::Error::success();
  }

private:
  bool hasInput(llvm::StringRef name) const {
    return llvm::any_of(graph.inputs(),
                        [&](const std::unique_ptr<Value>& input) { return input->name() == name; });
  }

  llvm::Error checkCache(const ManifestCache& cache) {
    if (!hasInput(cache.past))
      return invalid("the manifest's cache '{}' is not an input of the model", cache.past);
    if (cache.sequenceAxis < 0 || cache.sequenceAxis >= static_cast<int64_t>(cache.shape.size()))
      return invalid("cache '{}' has no axis {}", cache.past, cache.sequenceAxis);
    // A model rewritten in part has caches of both kinds.
    if (cache.isOneBuffer() && manifest.contract != CacheUpdate::InPlace)
      return invalid("cache '{}' contradicts the manifest's contract", cache.past);
    if (cache.isPool())
      if (llvm::Error error = checkPool(cache))
        return error;
    if (!names.insert(cache.past).second || !names.insert(cache.present).second)
      return invalid("the manifest lists cache '{}' twice", cache.past);
    return llvm::Error::success();
  }

  llvm::Error checkPool(const ManifestCache& cache) const {
    if (manifest.blockSize < 1 || cache.shape.size() != 4 || cache.sequenceAxis != 1 ||
        manifest.capacityValue.value_or(0) % std::max<int64_t>(manifest.blockSize, 1) != 0)
      return invalid("cache '{}' is a pool, but not one of blocks [block size, heads, width] of {} "
                     "tokens that the capacity is a multiple of",
                     cache.past, manifest.blockSize);
    if (llvm::none_of(manifest.lengths, [](const ManifestLength& length) {
          return length.feed == LengthFeed::BlockTable;
        }))
      return invalid("cache '{}' is a pool, but no input lists its blocks", cache.past);
    return llvm::Error::success();
  }

  llvm::Error checkBlocks(const ManifestCache& cache) {
    if (manifest.contract != CacheUpdate::Blocks)
      return invalid("cache '{}' contradicts the manifest's contract", cache.past);
    if (manifest.blockSize < 1 || !manifest.capacityValue)
      return invalid("cache '{}' is in blocks, but the manifest does not give their size, or the "
                     "capacity",
                     cache.past);
    const int64_t wanted = (*manifest.capacityValue - 1) / manifest.blockSize + 1;
    if (static_cast<int64_t>(cache.blocks().size()) != wanted)
      return invalid("cache '{}' has {} blocks, but {} tokens in blocks of {} need {}", cache.past,
                     cache.blocks().size(), *manifest.capacityValue, manifest.blockSize, wanted);
    for (const std::string& block : cache.blocks()) {
      if (!hasInput(block))
        return invalid("the block '{}' is not an input of the model", block);
      if (!names.insert(block).second)
        return invalid("the manifest lists block '{}' twice", block);
    }
    if (cache.sequenceAxis < 0 || cache.sequenceAxis >= static_cast<int64_t>(cache.shape.size()))
      return invalid("cache '{}' has no axis {}", cache.past, cache.sequenceAxis);
    if (!names.insert(cache.present).second)
      return invalid("the manifest lists cache '{}' twice", cache.past);
    return llvm::Error::success();
  }

  /// Whether counts are fed in that floating-point type.
  static bool hasFloats(ElementType element) {
    return element == ElementType::Float || element == ElementType::Double ||
           element == ElementType::Float16 || element == ElementType::BFloat16;
  }

  llvm::Error checkLength(const ManifestLength& length) {
    if (!hasInput(length.input))
      return invalid("the manifest's length '{}' is not an input of the model", length.input);
    if (!names.insert(length.input).second)
      return invalid("the manifest lists input '{}' twice", length.input);
    const bool isFitting = isFlag(length.feed)
                               ? length.dtype == ElementType::Bool || isInteger(length.dtype)
                               : isInteger(length.dtype) || hasFloats(length.dtype);
    if (!isFitting)
      return unsupported("length '{}' is {}", length.input, onnxName(length.dtype));
    return llvm::Error::success();
  }

  const Graph& graph;
  const Manifest& manifest;
  llvm::StringSet<> names; ///< names so far
};

} // namespace

llvm::Error checkInterface(const Graph& graph, const Manifest& manifest) {
  return InterfaceCheck(graph, manifest).run();
}

} // namespace kvopt::runtime
