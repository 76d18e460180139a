// Computation of lengths to feed.
#include "ir/manifest/fed_length.h"

namespace kvopt::ir {
std::optional<int64_t> fedLength(LengthFeed feed, int64_t past, int64_t tokens) {
  switch (feed) {
  case LengthFeed::PastLength:
  case LengthFeed::PastLengthPerBatch:
    return past;
  case LengthFeed::TotalLength:
  case LengthFeed::TotalLengthPerBatch:
    return past + tokens;
  case LengthFeed::TotalLengthMinusOne:
  case LengthFeed::TotalLengthPerBatchMinusOne:
    return past + tokens - 1;
  case LengthFeed::PastLengthMinusOne:
  case LengthFeed::PastLengthPerBatchMinusOne:
    return past - 1;
  case LengthFeed::NewLength:
    return tokens;
  case LengthFeed::HasPast:
    return past > 0 ? 1 : 0;
  case LengthFeed::NoPast:
    return past > 0 ? 0 : 1;
  case LengthFeed::BlockTable:
    break;
  }
  return std::nullopt;
}

} // namespace kvopt::ir
