// Step: the sizes with which both models are evaluated once.
#pragma once

#include "check/arithmetic/thresholds.h"

#include <cstdint>
#include <string>

namespace kvopt::check {

/// Sizes of one step: `tokens` new tokens in each of `batch` rows, after `past` earlier ones.
struct Step {
  int64_t batch = 1;
  int64_t past = 0;
  int64_t tokens = 1;
  /// Number of hidden tokens in the last batch row; each row before it has one less, down to none.
  int64_t padding = 0;
  /// Whether the hidden tokens follow the row's own ones, rather than precede them. After a past,
  /// they follow the first token.
  bool padsRight = false;
  /// Rows of buffers that the step leaves free.
  int64_t spare = 0;
  /// The first token of each row; -1 for one that the check chooses.
  int64_t token = -1;
  /// Limit of the second model's manifest that excludes the step; empty if none does.
  std::string excludedBy;

  int64_t total() const { return past + tokens; }
  bool isHidden(int64_t row, int64_t column) const;
  /// Text such as `batch 2, past 3, 1 new, 1 hidden on the left`.
  std::string text() const;
  bool operator==(const Step&) const = default;
};

/// Extent of axes about which nothing is known, such as an encoded sequence or an image: 2 to 4.
int64_t otherExtent(const Step& step);

/// Starts a step in notes of thresholds.
void enter(Thresholds& thresholds, const Step& step);

} // namespace kvopt::check
