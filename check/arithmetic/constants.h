// Constants: elements of the fields for floating-point numbers.
#pragma once

#include "check/arithmetic/code_steps.h"
#include "check/arithmetic/packed_codes.h"
#include "check/arithmetic/tensor.h"
#include "check/arithmetic/thresholds.h"

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace kvopt::check {

/// Gives each floating-point number its element. Weights are exact fractions. Other constants are
/// equal if they are equal within rounding: small fractions and their square and fourth roots are
/// recognized within a relative 2e-7, and two further numbers are one if they differ by at most
/// 3e-7 (relatively) or, between 0.01 and 1, by at most 1e-6. Not thread-safe.
class Constants {
public:
  explicit Constants(const Field& arithmetic) : field(arithmetic) {}

  /// A constant. Numbers of at most -10^4 are fills of masks.
  Exact constant(double value);
  /// A weight. Numbers of at most -10^30 are fills.
  Exact weight(double value) const;

  /// The tensor with elements of the fields; integers are themselves.
  Ref real(const Ref& tensor);
  /// Whether an element of a known tensor is not a number of the fields.
  static bool hasSpecial(const Tensor& tensor);

private:
  Exact recognized(double value);

  const Field& field;
  std::unordered_map<double, Exact> seen;
  std::map<double, Exact> representatives;
};

/// Arithmetic of one evaluation, and what it had to assume.
struct Arithmetic {
  explicit Arithmetic(unsigned seed) : field(seed), constants(field) {}
  Field field;
  Constants constants;
  std::set<std::string> assumptions;
  /// Work of the region that is evaluated, in products of numbers. A region is not decided beyond
  /// the limit, so that a check of a wide model ends.
  int64_t work = 0;
  static constexpr int64_t usualWork = int64_t(1) << 32;
  int64_t mostWork = usualWork;
  bool isExhausted() const { return work > mostWork; }
  /// Adds the work of making a tensor's elements.
  void countElements(const Tensor& tensor) {
    constexpr int64_t element = 8;
    work += tensor.isHollow ? 0 : element * tensor.count();
  }
  Thresholds thresholds;
  /// Selects one of many independent orders of real numbers.
  uint64_t order = 0;
  static constexpr uint64_t orders = 30;
  /// Whether the order of real numbers was used.
  bool usesOrder = false;
  /// Nodes that turn rows into codes (Roundings); null if there are none.
  const CodeSteps* codeSteps = nullptr;
  /// Numbers that hold two codes.
  PackedFloors floors;
  /// Why an integer is open (openInteger); empty if none is.
  std::string openInteger;
};

/// While it exists, notes of thresholds and the work are its own, apart from those of the
/// evaluation around it: what is known of a value must not depend on where it is needed first.
class NotesApart {
public:
  explicit NotesApart(Arithmetic& shared)
      : math(shared), others(std::move(shared.thresholds)), otherWork(shared.work) {
    math.thresholds.clear();
    math.work = 0;
  }
  ~NotesApart() {
    math.thresholds = std::move(others);
    math.work = otherWork;
  }
  NotesApart(const NotesApart&) = delete;
  NotesApart& operator=(const NotesApart&) = delete;

  /// Why a comparison may turn out differently beyond the scope; empty if none may.
  std::string gap() const { return math.thresholds.gap(); }

private:
  Arithmetic& math;
  Thresholds others;
  int64_t otherWork = 0;
};

} // namespace kvopt::check
