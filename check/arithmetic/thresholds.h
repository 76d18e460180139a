// Thresholds: places where a model's behavior changes with a size.
#pragma once

#include "check/arithmetic/growth.h"
#include "ir/node.h"

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace kvopt::check {

/// Constants of at least this size mean "to the end".
inline constexpr int64_t unlimited = int64_t(1) << 30;

/// What two quantities that a node compares are in the steps of a scope. A node that sees both
/// sides of a threshold, and the threshold itself, behaves alike beyond the scope. If it sees one
/// side only, larger sizes must not come nearer to the threshold.
class Thresholds {
public:
  /// Numbers of batch rows, earlier tokens, new tokens, free rows of buffers, and other extents.
  using Extents = std::array<int64_t, 5>;
  /// Starts a step. Steps with padding do not count as larger or smaller ones.
  void enter(const Extents& extents, bool isPadded);
  /// The sizes of the step.
  const Extents& sizes() const { return current.extents; }
  /// Declares that a capacity limits the numbers of earlier and new tokens, and that the scope has
  /// the steps at this limit. What does not come nearer in between does not do so beyond.
  void limitLengths() { areLengthsLimited = true; }
  /// Notes the difference of two numbers, left minus right, and its growth, which is affine. Each
  /// growth is a threshold of its own. `caller` is the node of the main graph whose function `node`
  /// belongs to, or `node` itself. `isExact` is false for numbers that need not meet the threshold.
  void note(const ir::Node& caller, const ir::Node& node, GrowthId id, const Growth& growth,
            double difference, bool isExact);
  /// Notes that a number repeats itself after so many sizes. The scope has to have two rounds.
  void notePeriod(const ir::Node& node, int64_t period);
  /// Notes that results depend on something that no size determines.
  void noteOpen(const std::string& why) {
    if (open.empty() && !isMuted)
      open = why;
  }
  /// Notes nothing while it is true: nothing depends on what is compared.
  void mute(bool isIrrelevant) { isMuted = isIrrelevant; }
  /// Why a comparison may turn out differently beyond the scope; empty if none may.
  std::string gap() const;
  void clear();

private:
  struct Sizes {
    Extents extents{1, 0, 1, 0, 0};
    bool isPadded = false;
  };
  struct Seen {
    const Growth* growth = nullptr;
    bool isExact = true;
    bool below = false, equal = false, above = false;
    /// The smallest distance from the threshold in each step without padding.
    std::vector<std::pair<Sizes, double>> nearest;
    void add(const Sizes& step, double difference);
    /// Whether the difference may turn out in a way that the scope does not have.
    bool isOpen(bool keepsLengths) const;
    bool mixesScales() const;
    bool comesNearer(bool keepsLengths) const;
    /// The same for a difference with a period: only lengths that differ by multiples of it show
    /// whether it comes nearer. True unless there are such steps for all remainders.
    bool comesNearerByPeriods(int64_t period) const;
  };
  struct Comparison {
    std::string node;
    std::map<GrowthId, Seen> seen;
    std::pair<GrowthId, Seen*> last{fixedGrowth, nullptr};
  };

  Sizes current;
  int64_t longest = 0; ///< largest number of tokens of a step so far
  int64_t longestPeriod = 0;
  std::string periodic; ///< the node that has the longest period
  bool areLengthsLimited = false;
  bool isMuted = false;
  std::string open;
  std::map<std::pair<const ir::Node*, const ir::Node*>, size_t> indices;
  std::vector<Comparison> comparisons;
};

} // namespace kvopt::check
