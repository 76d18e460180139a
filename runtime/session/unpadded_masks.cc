// Checks every element of masks of any integer width.
#include "runtime/session/unpadded_masks.h"

#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

namespace {

/// Whether all elements are the integer 1, stored with its lowest byte first.
bool areOnes(const TensorView& mask) {
  const size_t width = byteWidth(mask.element).value_or(0);
  if (width == 0 || !mask.isContiguous())
    return false;
  for (int64_t i = 0; i < mask.elementCount(); ++i) {
    const std::byte* element = mask.data + static_cast<size_t>(i) * width;
    const bool isOne = element[0] == std::byte{1} &&
                       std::all_of(element + 1, element + width,
                                   [](std::byte byte) { return byte == std::byte{0}; });
    if (!isOne)
      return false;
  }
  return true;
}

} // namespace

llvm::Error checkUnpadded(const Manifest& manifest, llvm::ArrayRef<NamedView> inputs,
                          int64_t tokens) {
  for (const NamedView& input : inputs) {
    if (!llvm::is_contained(manifest.unpadded, input.name))
      continue;
    const TensorView& mask = input.view;
    if (mask.rank() != 2 || mask.shape[1] != tokens || !areOnes(mask))
      return usageError("'{}' is not a one for each of {} tokens, but the model was rewritten for "
                        "batches without padding",
                        input.name, tokens)
          .hint("rewrite it for --to kvopt, which takes padding");
  }
  return llvm::Error::success();
}

} // namespace kvopt::runtime
