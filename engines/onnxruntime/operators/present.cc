// Recognizing one buffer as past and present, and copying valid rows otherwise.
#include "engines/onnxruntime/operators/present.h"

#include <cstring>

namespace kvopt::onnxruntime {

void CopyNotice::say(const Call& call, bool isWholeBuffer) const {
  if (isSaid.exchange(true))
    return;
  if (presents == Presents::longer)
    call.log(
        ORT_LOGGING_LEVEL_INFO,
        "the present is longer than the past, so each step copies the valid rows; a rewrite to "
        "caches of a fixed capacity appends in place");
  else if (isWholeBuffer)
    call.log(ORT_LOGGING_LEVEL_WARNING,
             "past and present are different buffers, so each step copies the valid rows; bind one "
             "buffer as both to append in place");
  else
    call.log(ORT_LOGGING_LEVEL_INFO,
             "the past has no room for the new rows, so each step copies it; pass a past with the "
             "capacity of all steps and bind it as the present to append in place");
}

Present presentOf(Call& call, unsigned result, const Tensor* past, ElementType type,
                  const Shape& shape, const CopyNotice& notice) {
  Present present{call.output(result, type, shape)};
  if (!past || past->count() == 0)
    return present;
  const bool isSame = present.tensor.data == past->data;
  // With a single head, rows have the same places for every capacity.
  const bool hasSamePlaces = past->shape == shape || shape[0] * shape[1] == 1;
  if (isSame && !hasSamePlaces)
    call.fail("past " + textOf(past->shape) + " and present " + textOf(shape) +
              " share one buffer but differ in capacity: bind the whole buffer as both");
  present.isInPlace = isSame;
  if (!isSame && call.wants(result))
    notice.say(call, past->shape == shape);
  return present;
}

void clearRows(const HeadRows& present, int64_t batch, int64_t head, int64_t first) {
  if (const int64_t rest = present.rows - first; rest > 0 && present.width > 0)
    std::memset(present.row(batch, head, first), 0, static_cast<size_t>(rest * present.rowBytes()));
}

void fillHead(const HeadRows& past, const HeadRows& present, int64_t batch, int64_t head,
              int64_t valid, int64_t fresh) {
  if (valid > 0)
    std::memcpy(present.row(batch, head, 0), past.row(batch, head, 0),
                static_cast<size_t>(valid * present.rowBytes()));
  clearRows(present, batch, head, valid + fresh);
}

} // namespace kvopt::onnxruntime
