// Looks for zeros, whatever the width of the integers.
#include "runtime/session/unpadded_masks.h"

#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

namespace {

bool hasZero(const TensorView& mask) {
  const size_t width = byteWidth(mask.element).value_or(0);
  if (width == 0 || !mask.isContiguous())
    return false;
  for (int64_t i = 0; i < mask.elementCount(); ++i) {
    const std::byte* element = mask.data + static_cast<size_t>(i) * width;
    if (std::all_of(element, element + width, [](std::byte byte) { return byte == std::byte{0}; }))
      return true;
  }
  return false;
}

} // namespace

llvm::Error checkUnpadded(const Manifest& manifest, llvm::ArrayRef<NamedView> inputs) {
  for (const NamedView& input : inputs)
    if (llvm::is_contained(manifest.unpadded, input.name) && hasZero(input.view))
      return usageError("'{}' hides a position, but the model was rewritten for batches without "
                        "padding",
                        input.name)
          .hint("rewrite it for --to kvopt, which takes padding");
  return llvm::Error::success();
}

} // namespace kvopt::runtime
