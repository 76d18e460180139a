// ai.kvopt::InPlaceQuantizedLatentKvSdpa: appends rows to one cache of codes, with a scale for
// each, and attends over them; the values are columns [v_offset, v_offset + v_width) of the same
// rows.
//
// ir/ops/kvopt/cache_operators.cc says how rows are rounded. Everything is checked
// before the first byte is written.
#include "runtime/attention/latent_values.h"
#include "runtime/attention/quantized_cache.h"
#include "support/format.h"
#include "support/four_bit_row.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// The byte of a row of so many columns at which the values begin; nullopt where they begin or end
/// within a group of four-bit codes.
std::optional<int64_t> valueByte(int64_t columns, const LatentValues& values, bool isPacked) {
  if (!isPacked)
    return values.offset;
  const FourBitRow row{columns};
  const int64_t group = 2 * row.halfGroup();
  const bool areGroups = values.offset % group == 0 &&
                         (values.width % group == 0 || values.offset + values.width == columns);
  if (!areGroups || FourBitRow{values.width}.halfGroup() != row.halfGroup())
    return std::nullopt;
  return values.offset / group * row.groupBytes();
}

llvm::Error inPlaceQuantizedLatentKvSdpa(KernelContext& context) {
  const bool isPacked = context.in(2).element == ElementType::UInt8;
  auto key = QuantizedCache::create(
      context,
      {{"keys", 1, 2, 1, "key_axis", isPacked ? ElementType::UInt8 : ElementType::Int8}, 3, 2});
  if (!key)
    return key.takeError();
  const InPlaceCache& codes = key->codes();
  if (codes.isTransposed())
    return context.error("rows with the sequence on the last axis are not supported");
  const TensorView& query = context.in(0);
  if (query.rank() != 4 || codes.rows() != query.shape[2])
    return context.error(
        fmt::format("{} new rows and the query's rows must be as many", codes.rows()));
  auto values = latentValues(context, codes.width());
  if (!values)
    return values.takeError();
  const std::optional<int64_t> first = valueByte(codes.width(), *values, isPacked);
  if (!first)
    return context.error(fmt::format("values in {} columns from {} on are not whole groups of the "
                                     "{} four-bit codes of a row",
                                     values->width, values->offset, codes.width()));
  auto lengths = cacheLengths(context, 4, query.shape[0], codes.rows(), codes.capacity());
  if (!lengths)
    return lengths.takeError();
  auto operands = attentionOperands(context, 5, 6);
  if (!operands)
    return operands.takeError();
  auto attendToSlots = [&](const CodeSlots& slots) {
    operands->key = operands->value = slots.codes;
    operands->keyScales = operands->valueScales = slots.scales;
    operands->value.shape[3] = isPacked ? FourBitRow{values->width}.bytes() : values->width;
    operands->value.data += *first;
  };
  operands->fourBitColumns = values->width;
  attendToSlots(key->pastSlots());
  operands->totalLengths = lengths->after;
  if (llvm::Error error = checkAttention(context, *operands))
    return error;

  auto output = context.output(0, query.element,
                               {query.shape[0], query.shape[1], query.shape[2], values->width});
  if (!output)
    return output.takeError();
  auto present = key->append(context, lengths->before);
  if (!present)
    return present.takeError();
  attendToSlots(*present);
  return runAttention(context, *operands, *output);
}

} // namespace

void register_in_place_quantized_latent_kv_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::InPlaceQuantizedLatentKvSdpa", 1, inPlaceQuantizedLatentKvSdpa);
}

} // namespace kvopt::kernels
