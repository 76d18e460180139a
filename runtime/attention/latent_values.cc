// Reading of v_offset and v_width.
#include "runtime/attention/latent_values.h"

#include "support/format.h"

namespace kvopt::runtime {

llvm::Expected<LatentValues> latentValues(const KernelContext& context, int64_t columns) {
  const int64_t offset = context.node().intAttr("v_offset", 0);
  const int64_t width = context.node().intAttr("v_width", 0);
  if (offset < 0 || width < 1 || offset > columns || width > columns - offset)
    return context.error(fmt::format("values in {} columns from {} on are not in rows of {}", width,
                                     offset, columns));
  return LatentValues{offset, width};
}

} // namespace kvopt::runtime
