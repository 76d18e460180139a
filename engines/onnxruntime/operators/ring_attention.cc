// Attention over caches in rings.
//
// A ring is written as runtime/attention/ring_attention.cc describes: a single token before
// attention reads the slots, several tokens after it has read a copy of the kept rows.
#include "engines/onnxruntime/operators/cache_call.h"

#include <algorithm>
#include <array>

namespace kvopt::onnxruntime {

namespace {

/// Positions of the rows of a ring with `slots` slots to which `past` tokens were written.
struct Ring {
  int64_t past;
  int64_t slots;

  int64_t kept() const { return std::min(past, slots - 1); }
  int64_t oldestSlot() const { return (past - kept()) % slots; }
  std::array<SlotSpan, 2> spans(int64_t first, int64_t slot, int64_t count) const {
    const int64_t beforeWrap = std::min(count, slots - slot);
    return {{{first, slot, beforeWrap}, {first + beforeWrap, 0, count - beforeWrap}}};
  }
  std::array<SlotSpan, 2> keptSpans() const { return spans(0, oldestSlot(), kept()); }
  std::array<SlotSpan, 2> newSpans(int64_t rows) const {
    const int64_t count = std::min(rows, slots);
    return spans(rows - count, (past + rows - count) % slots, count);
  }
};

class RingCall : public CacheCall {
public:
  using CacheCall::CacheCall;

  void run() {
    const std::vector<int64_t> past = pastLengths(call, form.pastLength(), batches());
    const int64_t slots = capacity();
    call.require(slots >= 1, "the ring has no slot");
    for (const int64_t length : past)
      call.require(length == past.front(), "batch rows of different lengths do not share a ring");
    const Ring ring{past.empty() ? 0 : past.front(), slots};
    if (ring.past < 0 || ring.past > INT64_MAX - rows() || rows() > INT64_MAX / 2 - slots)
      call.fail("past length " + std::to_string(ring.past) + " is impossible");
    const int64_t attended = ring.kept() + rows();
    operands.view.totalLength = attended;
    if (operands.mask)
      operands.mask->keepLast(call, attended);
    const bool isNarrowed = operands.view.window != 0 && operands.view.window < attended;
    rows() == 1 && !isNarrowed ? runSingle(ring) : runSeveral(ring, attended);
  }

private:
  void writeRing(const Ring& ring) {
    forEachHead(writtenElements(), [&](CacheSide& side, int64_t batch, int64_t head) {
      fill(side, std::min(ring.past, ring.slots), std::min(ring.past + rows(), ring.slots), batch,
           head);
      for (const SlotSpan& span : ring.newSpans(rows()))
        writeSpan(side, side.after, span, batch, head);
    });
  }

  void runSingle(const Ring& ring) {
    operands.view.causal = false;
    operands.view.window = 0;
    if (operands.mask) {
      // Slot s holds the key of column (s - slot of the oldest) mod C.
      if (const int64_t oldest = ring.oldestSlot(); oldest != 0)
        operands.mask->rotate(call, ring.slots - oldest);
      operands.mask->apply(call, operands.view);
    }
    openPresents();
    writeRing(ring);
    setSlots(keys().after, values().after);
    operands.attend(call);
  }

  void runSeveral(const Ring& ring, int64_t attended) {
    if (operands.mask)
      operands.mask->apply(call, operands.view);
    Slots ordered[2];
    for (unsigned index = 0; index < form.sides(); ++index)
      ordered[index] = orderedSlots(index == 0 ? keys() : values(), attended);
    forEachHead(freshElements() + keys().past.count(),
                [&](CacheSide& side, int64_t batch, int64_t head) {
                  const Slots& to = ordered[&side - &keys()];
                  for (const SlotSpan& span : ring.keptSpans())
                    copySpan(to, side.before, span, batch, head);
                  writeSpan(side, to, {0, ring.kept(), rows()}, batch, head);
                });
    setSlots(ordered[0], ordered[form.sides() - 1]);
    operands.attend(call);
    openPresents();
    writeRing(ring);
  }
};

} // namespace

void attendInRing(Call& call, const CacheSettings& settings, const CopyNotice& notice) {
  RingCall(call, settings, notice).run();
}

} // namespace kvopt::onnxruntime
