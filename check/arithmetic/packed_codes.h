// Packed codes: two codes of four bits in one number.
#pragma once

#include "check/arithmetic/tensor.h"
#include "support/four_bit_row.h"

#include <unordered_map>

namespace kvopt::check {

struct Arithmetic;

/// Remembers of sums `lower + 16 upper`, which hold two codes, what they are if they are divided by
/// 16 and rounded down: the codes of the upper four bits. Any other floor is an unknown function.
class PackedFloors {
public:
  /// `upper` is the summand of the codes above the others.
  void add(const Tensor& packed, const Tensor& upper, const Field& field);
  void add(const Exact& packed, const Exact& upper, const Field& field);
  /// The floor of a number; null if it is not known.
  const Exact* floorOf(const Exact& number) const;
  bool isEmpty() const { return floors.empty(); }
  void clear() { floors.clear(); }

private:
  std::unordered_map<uint32_t, Exact> floors; ///< by the residue modulo p of the quotient
};

/// Rows along the last axis as bytes of codes, two in each, with a multiplier after each group of
/// columns (FourBitRow). `scales` has one element for each row. `multiplierOf` gives the multiplier
/// of a group: of the row's number, the group's number, and the group's elements with padding.
Ref packedRows(const Ref& rows, const Ref& scales, Arithmetic& math,
               llvm::function_ref<Exact(size_t row, int64_t group, llvm::ArrayRef<Exact> numbers)>
                   multiplierOf);

/// The multiplier that a writer chooses for a group: its largest magnitude divided by 7 times the
/// row's scale, rounded up, and clamped.
class WrittenMultiplier {
public:
  explicit WrittenMultiplier(Arithmetic& shared);
  Exact of(llvm::ArrayRef<Exact> numbers, const Exact& scale) const;

private:
  Arithmetic& math;
  uint64_t magnitude, roundedUp; ///< names of unknown functions
};

} // namespace kvopt::check
