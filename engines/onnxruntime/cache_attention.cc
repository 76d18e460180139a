// Attention over caches of ai.kvopt's operators: checks, new rows, attention.
//
// A ring is written as runtime/attention/ring_attention.cc describes: a single token before
// attention reads the slots, several tokens after it has read a copy of the kept rows.
#include "engines/onnxruntime/cache_attention.h"

#include "engines/onnxruntime/attention_mask.h"
#include "engines/onnxruntime/cache_rows.h"
#include "engines/onnxruntime/present.h"
#include "runtime/simd/four_bit_rows.h"
#include "runtime/simd/quantize_row.h"

#include <algorithm>
#include <cstring>

namespace kvopt::onnxruntime {
using namespace simd;

namespace {

constexpr ElementType codeBytes = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
constexpr ElementType codePairs = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;

struct CacheSettings {
  CacheForm form{};
  float scale = 1.0f;
  float softcap = 0.0f;
  int64_t window = 0;
  bool causal = false;
  bool hasBooleanMask = false;
  int64_t axes[2] = {2, 2}; ///< key_axis, value_axis
  int64_t valueWidth = 0;   ///< of latent rows
  int64_t valueOffset = 0;
};

/// Slots and, for codes, their scales.
struct Slots {
  CacheRows rows;
  CacheRows scales;
};

/// New rows that are written, and their slots.
struct Span {
  int64_t first;
  int64_t slot;
  int64_t count;
};

/// One cache of a call.
struct Side {
  CacheRows fresh;
  Tensor past, pastScale;
  Slots before, after;
  bool isInPlace = false;
};

/// Positions of the rows of a ring with `slots` slots to which `past` tokens were written.
struct Ring {
  int64_t past;
  int64_t slots;

  int64_t kept() const { return std::min(past, slots - 1); }
  int64_t oldestSlot() const { return (past - kept()) % slots; }
  std::array<Span, 2> spans(int64_t first, int64_t slot, int64_t count) const {
    const int64_t beforeWrap = std::min(count, slots - slot);
    return {{{first, slot, beforeWrap}, {first + beforeWrap, 0, count - beforeWrap}}};
  }
  std::array<Span, 2> keptSpans() const { return spans(0, oldestSlot(), kept()); }
  std::array<Span, 2> newSpans(int64_t rows) const {
    const int64_t count = std::min(rows, slots);
    return spans(rows - count, (past + rows - count) % slots, count);
  }
};

class CacheCall {
public:
  CacheCall(Call& ofNode, const CacheSettings& of, const CopyNotice& copyNotice)
      : call(ofNode), settings(of), form(of.form), notice(copyNotice) {}

  void run() {
    query = call.input(0);
    call.require(query.rank() == 4, "the query must be [B,H,S,D]");
    for (unsigned side = 0; side < form.sides(); ++side)
      open(side);
    checkSides();
    setView();
    form.isRing ? runRing() : runBuffer();
  }

private:
  int64_t batches() const { return query.shape[0]; }
  int64_t rows() const { return query.shape[2]; }
  Side& keys() { return sides[0]; }
  Side& values() { return sides[form.sides() - 1]; }
  bool isPacked() const { return form.hasCodes && sides[0].past.type == codePairs; }
  int64_t heldWidth(int64_t columns) const {
    return isPacked() ? FourBitRow{columns}.bytes() : columns;
  }

  void open(unsigned index) {
    Side& side = sides[index];
    const Tensor fresh = call.input(CacheForm::fresh(index));
    if (fresh.rank() != 4 || fresh.shape[0] != batches() || fresh.shape[2] != rows())
      call.fail("new rows " + textOf(fresh.shape) + " do not match the query " +
                textOf(query.shape));
    side.fresh = *cacheRows(fresh, 2, batches(), fresh.shape[1]);
    side.past = call.input(form.past(index));
    const bool hasType = form.hasCodes
                             ? (side.past.type == codeBytes || isPacked()) &&
                                   side.past.type == sides[0].past.type && storageOf(fresh.type)
                             : side.past.type == fresh.type;
    if (!hasType)
      call.fail(std::string("new rows are ") + elementName(fresh.type) + ", those of the cache " +
                elementName(side.past.type));
    side.before.rows = slotsOf(side.past, index);
    if (side.before.rows.width != heldWidth(side.fresh.width) ||
        (isPacked() && side.before.rows.isTransposed()))
      call.fail("a cache " + textOf(side.past.shape) + " does not hold new rows " +
                textOf(fresh.shape));
    if (!form.hasCodes)
      return;
    side.pastScale = call.input(form.past(index) + 1);
    side.before.scales = slotsOf(side.pastScale, index);
    if (side.pastScale.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT ||
        side.before.scales.width != 1 || side.before.scales.slots != side.before.rows.slots)
      call.fail("scales " + textOf(side.pastScale.shape) + " for a cache " +
                textOf(side.past.shape) + "; they should be float, one per row");
  }

  CacheRows slotsOf(const Tensor& cache, unsigned index) const {
    const auto rows_ = cacheRows(cache, settings.axes[index], batches(), sides[index].fresh.heads);
    if (!rows_)
      call.fail("a cache " + textOf(cache.shape) + " with the sequence on axis " +
                std::to_string(settings.axes[index]) + " does not hold " +
                std::to_string(batches()) + " batch rows of " +
                std::to_string(sides[index].fresh.heads) + " heads");
    return *rows_;
  }

  void checkSides() {
    call.require(keys().before.rows.slots == values().before.rows.slots,
                 "the caches of keys and values differ in capacity");
    call.require(keys().fresh.heads == values().fresh.heads,
                 "keys and values differ in their number of heads");
    call.require(!values().before.rows.isTransposed(),
                 "values with the sequence on the last axis are not supported");
    call.require(keys().fresh.width == query.shape[3] && query.shape[3] > 0,
                 "the query and the keys differ in width");
    const int64_t groups = keys().fresh.heads;
    call.require(groups > 0 && query.shape[1] % groups == 0,
                 "the query's heads are not a multiple of the heads of keys and values");
    const bool areNumbers = !form.hasCodes && keys().past.type == codeBytes;
    call.require(storageOf(query.type) &&
                     (form.hasCodes || areNumbers || storageOf(keys().past.type)),
                 "query or caches have an element type that is not supported");
    call.require(keys().past.type == values().past.type,
                 "the caches of keys and values differ in element type");
  }

  /// Sets everything but caches, lengths and output.
  void setView() {
    view.batches = batches();
    view.queryHeads = query.shape[1];
    view.kvHeads = keys().fresh.heads;
    view.queryRows = rows();
    view.keyWidth = query.shape[3];
    view.valueWidth = form.isLatent ? settings.valueWidth : values().fresh.width;
    view.queryStorage = *storageOf(query.type);
    view.outputStorage = view.queryStorage;
    view.query = query.data;
    view.queryStrides = rowsOf(query).strides;
    view.scale = settings.scale;
    view.causal = settings.causal;
    view.window = settings.window;
    view.softcap = settings.softcap;
    if (isPacked())
      view.codeForm = CodeForm::fourBitRows;
    if (call.has(form.sinks())) {
      const Tensor sinks = call.input(form.sinks());
      call.require(sinks.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT &&
                       sinks.count() == view.queryHeads,
                   "sinks must be one float per query head");
      view.sinks = sinks.as<float>();
    }
    if (call.has(form.mask())) {
      const Tensor given = call.input(form.mask());
      call.require((given.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL) == settings.hasBooleanMask,
                   "mask_boolean does not agree with the mask's element type");
      mask.emplace(call, given);
    }
    valueOffset = offsetOfValues();
  }

  /// First element of the values within a row.
  int64_t offsetOfValues() {
    if (!form.isLatent)
      return 0;
    const int64_t columns = keys().fresh.width;
    const int64_t offset = settings.valueOffset, width = settings.valueWidth;
    if (offset < 0 || width < 1 || offset > columns || width > columns - offset)
      call.fail("values in " + std::to_string(width) + " columns from " + std::to_string(offset) +
                " on are not in rows of " + std::to_string(columns));
    if (!isPacked())
      return offset;
    const FourBitRow row{columns};
    const int64_t group = 2 * row.halfGroup();
    call.require(offset % group == 0 && (width % group == 0 || offset + width == columns) &&
                     FourBitRow{width}.halfGroup() == row.halfGroup(),
                 "v_offset and v_width are not whole groups of four-bit codes");
    return offset / group * row.groupBytes();
  }

  std::vector<int64_t> pastLengths() {
    std::vector<int64_t> lengths = call.integers(form.pastLength());
    if (lengths.size() == 1)
      lengths.resize(static_cast<size_t>(batches()), lengths.front());
    call.require(static_cast<int64_t>(lengths.size()) == batches(),
                 "past_length must be int64 of shape [1] or [batch]");
    return lengths;
  }

  void setSlots(const Slots& key, const Slots& value) {
    static constexpr float one = 1.0f;
    view.keyTransposed = key.rows.isTransposed();
    view.key = key.rows.data;
    view.keyStrides = key.rows.strides();
    if (view.keyTransposed)
      view.keyStrides.row = key.rows.columnStride;
    view.value = value.rows.data + valueOffset * elementBytes(value.rows.type);
    view.valueStrides = value.rows.strides();
    if (form.hasCodes) {
      view.keyScales = reinterpret_cast<const float*>(key.scales.data);
      view.valueScales = reinterpret_cast<const float*>(value.scales.data);
      view.keyScaleStrides = key.scales.strides();
      view.valueScaleStrides = value.scales.strides();
    } else if (key.rows.type == codeBytes) {
      // Int8 rows without scales are plain numbers.
      view.keyScales = view.valueScales = &one;
    } else {
      view.cacheStorage = *storageOf(key.rows.type);
    }
  }

  void openPresents() {
    for (unsigned index = 0; index < form.sides(); ++index) {
      Side& side = sides[index];
      const Present present =
          presentOf(call, form.present(index), &side.past, side.past.type, side.past.shape, notice);
      side.after.rows = slotsOf(present.tensor, index);
      side.isInPlace = present.isInPlace;
      if (!form.hasCodes)
        continue;
      const Present scales = presentOf(call, form.present(index) + 1, &side.pastScale,
                                       side.pastScale.type, side.pastScale.shape, notice);
      side.after.scales = slotsOf(scales.tensor, index);
      call.require(scales.isInPlace == present.isInPlace,
                   "of a cache and its scales, only one is bound as past and present");
    }
  }

  void copySpan(const Slots& to, const Slots& from, const Span& span, int64_t batch, int64_t head) {
    copySlots(to.rows, span.first, from.rows, span.slot, span.count, batch, head);
    if (form.hasCodes)
      copySlots(to.scales, span.first, from.scales, span.slot, span.count, batch, head);
  }

  /// Completes a present that is not in place: `valid` slots are copied, and those from `end` on
  /// are set to zero.
  void fill(const Side& side, int64_t valid, int64_t end, int64_t batch, int64_t head) {
    if (side.isInPlace)
      return;
    copySpan(side.after, side.before, {0, 0, valid}, batch, head);
    clearSlots(side.after.rows, end, batch, head);
    if (form.hasCodes)
      clearSlots(side.after.scales, end, batch, head);
  }

  void writeSpan(const Side& side, const Slots& to, const Span& span, int64_t batch, int64_t head) {
    if (!form.hasCodes)
      return copySlots(to.rows, span.slot, side.fresh, span.first, span.count, batch, head);
    const FloatStorage storage = *storageOf(side.fresh.type);
    // A row whose columns are far apart is made in a row of its own.
    std::vector<std::byte> apart(to.rows.isTransposed() ? static_cast<size_t>(side.fresh.width)
                                                        : 0);
    for (int64_t i = 0; i < span.count; ++i) {
      const std::byte* numbers = side.fresh.slot(batch, head, span.first + i);
      std::byte* codes = to.rows.slot(batch, head, span.slot + i);
      std::byte* target = to.rows.isTransposed() ? apart.data() : codes;
      const float scale = isPacked()
                              ? quantizeFourBitRow(numbers, storage, side.fresh.width,
                                                   reinterpret_cast<uint8_t*>(target))
                              : quantizeRow(numbers, storage, static_cast<size_t>(side.fresh.width),
                                            reinterpret_cast<int8_t*>(target));
      std::memcpy(to.scales.slot(batch, head, span.slot + i), &scale, sizeof scale);
      for (size_t column = 0; column < apart.size(); ++column)
        codes[static_cast<int64_t>(column) * to.rows.columnStride] = apart[column];
    }
  }

  /// Calls body(side, batch, head) for every head of every cache.
  template <class Body> void forEachHead(int64_t elements, const Body& body) {
    const int64_t heads = view.kvHeads, count = batches() * heads;
    call.forEach(count * form.sides(), elements, [&](int64_t unit) {
      body(sides[unit / count], unit % count / heads, unit % heads);
    });
  }
  int64_t freshElements() const {
    return 2 * batches() * sides[0].fresh.heads * rows() * sides[0].fresh.width;
  }
  /// Number of elements that are written to presents.
  int64_t writtenElements() const {
    return freshElements() + (sides[0].isInPlace ? 0 : 2 * sides[0].past.count());
  }

  Tensor output() {
    return call.output(0, query.type, {batches(), view.queryHeads, rows(), view.valueWidth});
  }

  void attend(const Tensor& result) {
    view.output = result.data;
    view.outputStrides = rowsOf(result).strides;
    if (result.count() != 0)
      call.attend({&view, 1});
  }

  void runBuffer() {
    const std::vector<int64_t> past = pastLengths();
    std::vector<int64_t> total;
    const int64_t capacity = keys().before.rows.slots;
    for (const int64_t length : past) {
      if (length < 0 || length > capacity || rows() > capacity - length)
        call.fail("past length " + std::to_string(length) + " and " + std::to_string(rows()) +
                  " new rows exceed the capacity of " + std::to_string(capacity) + " rows");
      total.push_back(length + rows());
    }
    view.totalLengths = total.data();
    view.totalLength = total.empty() ? 0 : *std::max_element(total.begin(), total.end());
    if (mask)
      mask->apply(call, view);
    openPresents();
    forEachHead(writtenElements(), [&](Side& side, int64_t batch, int64_t head) {
      const int64_t length = past[static_cast<size_t>(batch)];
      fill(side, length, length + rows(), batch, head);
      writeSpan(side, side.after, {0, length, rows()}, batch, head);
    });
    setSlots(keys().after, values().after);
    attend(output());
  }

  void runRing() {
    const std::vector<int64_t> past = pastLengths();
    const int64_t slots = keys().before.rows.slots;
    call.require(slots >= 1, "the ring has no slot");
    for (const int64_t length : past)
      call.require(length == past.front(), "batch rows of different lengths do not share a ring");
    const Ring ring{past.empty() ? 0 : past.front(), slots};
    if (ring.past < 0 || ring.past > INT64_MAX - rows() || rows() > INT64_MAX / 2 - slots)
      call.fail("past length " + std::to_string(ring.past) + " is impossible");
    const int64_t attended = ring.kept() + rows();
    view.totalLength = attended;
    if (mask)
      mask->keepLast(call, attended);
    const bool isNarrowed = view.window != 0 && view.window < attended;
    rows() == 1 && !isNarrowed ? runSingle(ring) : runSeveral(ring, attended);
  }

  void writeRing(const Ring& ring) {
    forEachHead(writtenElements(), [&](Side& side, int64_t batch, int64_t head) {
      fill(side, std::min(ring.past, ring.slots), std::min(ring.past + rows(), ring.slots), batch,
           head);
      for (const Span& span : ring.newSpans(rows()))
        writeSpan(side, side.after, span, batch, head);
    });
  }

  void runSingle(const Ring& ring) {
    view.causal = false;
    view.window = 0;
    if (mask) {
      // Slot s holds the key of column (s - slot of the oldest) mod C.
      if (const int64_t oldest = ring.oldestSlot(); oldest != 0)
        mask->rotate(call, ring.slots - oldest);
      mask->apply(call, view);
    }
    openPresents();
    writeRing(ring);
    setSlots(keys().after, values().after);
    attend(output());
  }

  void runSeveral(const Ring& ring, int64_t attended) {
    if (mask)
      mask->apply(call, view);
    Slots ordered[2];
    for (unsigned index = 0; index < form.sides(); ++index) {
      const Side& side = sides[index];
      const int64_t heads = side.fresh.heads;
      const Tensor held =
          call.scratchTensor(side.past.type, {batches(), heads, attended, side.before.rows.width});
      ordered[index].rows = *cacheRows(held, 2, batches(), heads);
      if (!form.hasCodes)
        continue;
      const Tensor scales =
          call.scratchTensor(side.pastScale.type, {batches(), heads, attended, 1});
      ordered[index].scales = *cacheRows(scales, 2, batches(), heads);
    }
    forEachHead(freshElements() + keys().past.count(),
                [&](Side& side, int64_t batch, int64_t head) {
                  const Slots& to = ordered[&side - sides];
                  for (const Span& span : ring.keptSpans())
                    copySpan(to, side.before, span, batch, head);
                  writeSpan(side, to, {0, ring.kept(), rows()}, batch, head);
                });
    setSlots(ordered[0], ordered[form.sides() - 1]);
    attend(output());
    openPresents();
    writeRing(ring);
  }

  Call& call;
  const CacheSettings& settings;
  const CacheForm form;
  const CopyNotice& notice;
  Tensor query;
  Side sides[2];
  AttentionView view;
  std::optional<AttentionMask> mask;
  int64_t valueOffset = 0;
};

class CacheAttention : public Operation {
public:
  explicit CacheAttention(const CacheSettings& ofNode) : settings(ofNode) {}
  void compute(Call& call) const override { CacheCall(call, settings, notice).run(); }

private:
  CacheSettings settings;
  CopyNotice notice;
};

std::string reasonAgainstTypes(const NodeDescription& node, const CacheForm& form) {
  if (!storageOf(node.typeOf(0)))
    return std::string("query of ") + elementName(node.typeOf(0));
  for (unsigned side = 0; side < form.sides(); ++side) {
    const ElementType fresh = node.typeOf(CacheForm::fresh(side));
    const ElementType past = node.typeOf(form.past(side));
    const bool fits = form.hasCodes ? storageOf(fresh) && (past == codeBytes || past == codePairs)
                                    : past == fresh && (storageOf(past) || past == codeBytes);
    if (!fits)
      return std::string("cache of ") + elementName(past);
  }
  if (node.typeOf(form.pastLength()) != ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64)
    return "type of past_length";
  return "";
}

} // namespace

Offer cacheAttention(const NodeDescription& node) {
  CacheSettings settings;
  for (const CacheForm& form : cacheForms)
    if (node.op == form.op)
      settings.form = form;
  for (const auto& [name, value] : node.attributes) {
    const bool isKnown = name == "scale" || name == "softcap" || name == "window" ||
                         name == "causal" || name == "mask_boolean" || name == "key_axis" ||
                         name == "value_axis" || name == "v_width" || name == "v_offset";
    if (!isKnown && !isNeutral(value))
      return Offer::refused("attribute " + name);
  }
  settings.scale = node.number("scale", 1.0f);
  settings.softcap = node.number("softcap", 0.0f);
  settings.window = node.integer("window", 0);
  settings.causal = node.integer("causal", 0) != 0;
  settings.hasBooleanMask = node.integer("mask_boolean", 0) != 0;
  settings.axes[0] = node.integer("key_axis", 2);
  settings.axes[1] = node.integer("value_axis", 2);
  settings.valueWidth = node.integer("v_width", 0);
  settings.valueOffset = node.integer("v_offset", 0);
  if (settings.window < 0 || !(settings.softcap >= 0.0f))
    return Offer::refused("attribute window or softcap");
  if (std::string reason = reasonAgainstTypes(node, settings.form); !reason.empty())
    return Offer::refused(std::move(reason));
  return {std::make_unique<CacheAttention>(settings), ""};
}

} // namespace kvopt::onnxruntime
