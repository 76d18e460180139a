// Constants: elements of the fields for floating-point numbers.
#pragma once

#include "check/arithmetic/code_steps.h"
#include "check/arithmetic/key.h"
#include "check/arithmetic/packed_codes.h"
#include "check/arithmetic/table_reads.h"
#include "check/arithmetic/tensor.h"
#include "check/arithmetic/thresholds.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace kvopt::check {

struct Arithmetic;

/// Gives each floating-point number its element. Weights are exact fractions. Other constants are
/// equal if they are equal within rounding: small fractions and their square and fourth roots are
/// recognized within a relative 2e-7, and two further numbers are one if they differ by at most
/// 3e-7 (relatively) or, between 0.01 and 1, by at most 1e-6. Not thread-safe.
class Constants {
public:
  explicit Constants(const Field& arithmetic) : field(arithmetic) {}

  /// Numbers that became elements in one region, by their residues.
  struct Uses {
    struct Use {
      double value = 0;
      bool isOfModel = false; ///< whether it is a constant of the model, not computed
    };
    std::unordered_map<uint64_t, Use> used;
    /// Two different numbers that are one element.
    std::optional<std::pair<double, double>> merged;
    /// Whether `merged` are constants of a model that differ by more than rounding does.
    bool isDoubtful = false;
  };

  /// A constant. Numbers of at most -10^4 are fills of masks (Status::Fill).
  Exact constant(double value, bool isOfModel = true);
  /// The element of a constant of 64 bits, which is not a rounded fraction or root.
  Exact ofDouble(double value) const;
  /// A weight. Numbers of at most -10^30 are fills.
  Exact weight(double value) const;

  /// The tensor with elements of the fields; integers are themselves.
  Ref real(const Ref& tensor);
  /// Whether an element of a known tensor is not a number of the fields.
  static bool hasSpecial(const Tensor& tensor);
  /// Starts a region.
  void forgetUses() { uses = {}; }
  /// Exchanges what is known of the region.
  void swapUses(Uses& others) { std::swap(uses, others); }
  /// Notes that different constants of the region are one number. Equality is not proved if they
  /// differ by more than rounding does: their difference may be multiplied.
  void noteMerged(Arithmetic& math) const;

private:
  Exact recognized(double value);
  Exact elementOf(double value);
  void use(double value, const Exact& element, bool isOfModel);

  const Field& field;
  Uses uses;
  std::unordered_map<double, Exact> seen;
  std::map<double, Exact> representatives;
};

/// Assumptions about fills.
inline constexpr const char* finiteInputs = "caches and other inputs hold finite numbers";
inline constexpr const char* withinFills = "numbers are within the fills of masks";
inline constexpr const char* fillHidesKey =
    "a large negative number in a mask gives its key no weight where another key is visible";

/// Arithmetic of one evaluation, and what it had to assume.
struct Arithmetic {
  explicit Arithmetic(unsigned seed) : field(seed), constants(field) {}
  Field field;
  Constants constants;
  std::set<std::string> assumptions;
  /// Work of the region that is evaluated and of what was evaluated before, in products of numbers.
  /// A region is not decided beyond the limits, so that a check of any model ends.
  int64_t work = 0, earlierWork = 0;
  static constexpr int64_t usualWork = int64_t(1) << 31; ///< about two seconds
  static constexpr int64_t regions = 3; ///< number of regions that may need as much
  int64_t mostWork = usualWork, mostInAll = regions * usualWork;
  bool isExhausted() const { return work > mostWork || isExhaustedInAll(); }
  bool isExhaustedInAll() const { return work + earlierWork > mostInAll; }
  void beginWork() {
    earlierWork += work;
    work = 0;
  }
  /// Adds the work of making a tensor's elements.
  void countElements(const Tensor& tensor) {
    constexpr int64_t element = 48, knownNumber = 4;
    work += tensor.isHollow ? 0 : (tensor.isReal() ? element : knownNumber) * tensor.count();
  }
  Thresholds thresholds;
  TableReads tableReads;
  Growths growths;
  /// A known number as the sum of the multiples that its growth says; nullopt if it has others.
  std::optional<Exact> exactOf(const Tensor& tensor, size_t at);
  /// Whether known numbers that depend on sizes become elements of the fields by their growth, and
  /// their functions unknown functions, so that equality does not depend on the sizes of the scope.
  bool isBySizes = false;
  /// Whether only shapes and the places of special elements are wanted, which do not depend on
  /// known numbers that functions of sizes give, unless these become integers or are compared.
  bool isOfShapes = false;
  /// Whether numbers were used that would be determined by their growth.
  bool readsSizes = false;
  /// The tensor with elements of the fields. Notes numbers whose growth does not determine them;
  /// `user` describes what needs them.
  Ref real(const Ref& tensor, llvm::function_ref<std::string()> user);
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
  /// The growths of results' extents, and of those over which elements are reduced (extentGrowths).
  std::unordered_map<Key, std::pair<ExtentIds, ExtentIds>, KeyHash> extents;
};

/// While it exists, notes of thresholds and tables and the work are its own, apart from those of
/// the evaluation around it: what is known of a value must not depend on where it is needed first.
class NotesApart {
public:
  explicit NotesApart(Arithmetic& shared)
      : math(shared), others(std::move(shared.thresholds)),
        otherReads(std::move(shared.tableReads)), otherWork(shared.work) {
    math.thresholds.clear();
    math.tableReads.clear();
    math.constants.swapUses(otherUses);
    math.work = 0;
  }
  ~NotesApart() {
    math.thresholds = std::move(others);
    math.tableReads = std::move(otherReads);
    math.constants.swapUses(otherUses);
    math.beginWork();
    math.work = otherWork;
  }
  NotesApart(const NotesApart&) = delete;
  NotesApart& operator=(const NotesApart&) = delete;

  /// Why a comparison may turn out differently beyond the scope; empty if none may.
  std::string gap() const { return math.thresholds.gap(); }
  /// Which node leaves entries of a table unread; empty if none does.
  std::string unread() const { return math.tableReads.gap(); }

private:
  Arithmetic& math;
  Thresholds others;
  TableReads otherReads;
  Constants::Uses otherUses;
  int64_t otherWork = 0;
};

} // namespace kvopt::check
