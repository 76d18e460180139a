// IndexMap: the element of one tensor that an element of another equals, if only data movement
// connects the two (Transpose, Reshape, Expand, Tile, Slice, Gather with fixed indices, …).
#pragma once

#include "ir/movement.h"
#include "ir/node.h"

#include <optional>
#include <vector>

namespace kvopt::analysis {

/// The function from the indices of a target tensor to the indices of a source tensor: element
/// [i0..in] of the target is element [f0(i)..fm(i)] of the source.
///
/// Each axis of the target is cut into factors (a mixed radix, outermost first), and each f is an
/// offset plus a sum of strides times factors. Transposing permutes, reshaping regroups factors,
/// and repeating leaves factors unread. Extents are Dims. Every statement is proved and holds for
/// all sizes at which the target has an element.
class IndexMap {
public:
  /// The map of a tensor onto itself.
  static IndexMap identity(llvm::ArrayRef<ir::Dim> shape);
  /// The map of the slice at `index` of `axis`, which keeps that axis with extent one, onto the
  /// whole tensor.
  static IndexMap ofPart(llvm::ArrayRef<ir::Dim> shape, unsigned axis, int64_t index);

  /// Extents of the source that the map has reached.
  llvm::ArrayRef<ir::Dim> source() const { return sourceShape; }
  llvm::ArrayRef<ir::Dim> target() const { return targetShape; }

  /// Makes the moved operand of `node` the source; the current source is the node's result
  /// `result`. Returns false, with the map unchanged, if the node is not a data movement or its map
  /// cannot be proved.
  bool through(const ir::Node& node, unsigned result = 0);
  /// Makes a tensor with the same elements in the same order, of shape `shape`, the source.
  bool throughReshape(llvm::ArrayRef<ir::Dim> shape);
  /// Makes the operand of a Concat that holds the target the source, and returns its index. Returns
  /// nullopt, with the map unchanged, if the elements may come from several operands.
  std::optional<unsigned> throughPartOf(const ir::Node& concat);

  /// Whether every element maps to itself, and the shapes are provably equal.
  bool isIdentity() const;
  /// `perm` of the Transpose that turns the source into the target, if there is one.
  std::optional<llvm::SmallVector<unsigned, 4>> transposition() const;
  /// Whether the target is a Reshape of the source: equal in row-major order.
  bool isReshape() const;

  /// Result of `repetition`.
  struct Repetition {
    /// The target's shape before the repetition.
    llvm::SmallVector<ir::Dim, 4> shape;
    /// Movement from the source to a tensor of that shape: by Transpose<perm> (the identity
    /// included) …
    std::optional<llvm::SmallVector<unsigned, 4>> perm;
    /// … or by Reshape. At least one of the two is set.
    bool byReshape = false;
  };
  enum class Repeat {
    Entries, ///< each entry N times: index i reads entry floor(i / N)
    Whole,   ///< all entries N times in sequence: index i reads entry i mod G
  };
  /// The target as a repetition along `axis` of an axis with shape[axis] entries; every other axis
  /// is read one to one. Only one repetition is allowed. nullopt if that cannot be proved.
  std::optional<Repetition> repetition(unsigned axis, Repeat order) const;

  /// Result of `part`.
  struct Part {
    llvm::SmallVector<unsigned, 4> perm;
    int64_t index;
  };
  /// The target, of extent one along `axis`, as the slice at `index` of that axis of
  /// Transpose<perm> of the source; nullopt if that cannot be proved.
  std::optional<Part> part(unsigned axis) const;

  using SymbolLookup = llvm::function_ref<std::optional<int64_t>(llvm::StringRef)>;
  /// The source's index for one target index; nullopt if `lookup` lacks a symbol, or on overflow.
  std::optional<llvm::SmallVector<int64_t, 4>> evaluate(llvm::ArrayRef<int64_t> index,
                                                        SymbolLookup lookup) const;

private:
  static constexpr size_t maxFactors = 32;
  struct Term {
    unsigned factor;
    ir::Dim stride;
  };
  /// offset + the sum of stride * factor.
  struct Coordinate {
    ir::Dim offset = ir::Dim::fixed(0);
    llvm::SmallVector<Term, 4> terms;
  };
  using Coordinates = llvm::SmallVector<Coordinate, 4>;
  enum class Division { Done, Split, Unproven };

  bool throughPermutation(const ir::Movement& movement);
  bool throughInserted(const ir::Movement& movement, llvm::ArrayRef<ir::Dim> shape);
  bool throughRemoved(const ir::Movement& movement, llvm::ArrayRef<ir::Dim> shape);
  bool throughBroadcast(llvm::ArrayRef<ir::Dim> shape);
  bool throughRepeat(const ir::Movement& movement, llvm::ArrayRef<ir::Dim> shape);
  bool throughSlice(const ir::Movement& movement, llvm::ArrayRef<ir::Dim> shape);
  bool throughGather(const ir::Movement& movement, const ir::Node& node,
                     llvm::ArrayRef<ir::Dim> shape);
  bool throughPoints(const ir::Movement& movement, const ir::Node& node,
                     llvm::ArrayRef<ir::Dim> shape);
  bool throughConcat(const ir::Movement& movement, const ir::Node& node,
                     llvm::ArrayRef<ir::Dim> shape);
  /// Gather along `axis` of entries that are in range.
  bool throughEntries(unsigned axis, llvm::ArrayRef<int64_t> entries);
  /// A range with a negative step, if one index of the axis is read.
  bool throughReversed(unsigned axis, const ir::MovementRange& range, const ir::Dim& extent);
  bool throughAny(const ir::Movement& movement, const ir::Value& result);

  void setSource(llvm::ArrayRef<ir::Dim> shape) { sourceShape.assign(shape.begin(), shape.end()); }
  bool isUnit(unsigned factor) const { return factors[factor].value() == 1; }
  /// Cuts `factor` into an outer factor of extent factors[factor] / inner and an inner one of
  /// extent `inner`.
  void split(unsigned factor, const ir::Dim& outer, const ir::Dim& inner);
  /// form = quotient * divisor + remainder with 0 <= remainder < divisor. May cut a factor instead;
  /// coordinates taken from the map before are then invalid.
  Division divide(const Coordinate& form, const ir::Dim& divisor, Coordinate& quotient,
                  Coordinate& remainder);
  /// Replaces the coordinate of `axis` by its remainder (or quotient).
  bool reduceModulo(unsigned axis, const ir::Dim& divisor);
  bool reduceQuotient(unsigned axis, const ir::Dim& divisor);
  static Coordinate scaled(const Coordinate& form, const ir::Dim& by);
  static void add(Coordinate& sum, const Coordinate& form);
  /// Row-major position of coordinates in a shape; nullopt if a required extent is unknown.
  static std::optional<Coordinate> linear(llvm::ArrayRef<Coordinate> coordinates,
                                          llvm::ArrayRef<ir::Dim> shape);
  /// The coordinate that the listed factors form, outermost first.
  std::optional<Coordinate> formOf(llvm::ArrayRef<unsigned> list) const;
  /// Whether the coordinates are equal for all indices; terms of extent one are ignored.
  bool isSame(const Coordinate& a, const Coordinate& b) const;
  bool isZero(const Coordinate& form) const;
  /// The number that a coordinate equals for all indices.
  std::optional<int64_t> fixedIndex(const Coordinate& form) const;
  /// Matches the coordinates of the source with `forms` one to one; extents of one may match any
  /// position.
  std::optional<llvm::SmallVector<unsigned, 4>> matchAxes(llvm::ArrayRef<Coordinate> forms,
                                                          llvm::ArrayRef<ir::Dim> extents) const;

  /// `repetition`; without an axis, requires that nothing is repeated.
  std::optional<Repetition> repetitionOf(std::optional<unsigned> repeatedAxis, Repeat order) const;
  /// The factors that are read, if they come before (or after) all others.
  static std::optional<llvm::SmallVector<unsigned, 4>>
  readFactors(llvm::ArrayRef<unsigned> axis, const std::vector<bool>& isRead, Repeat order);

  llvm::SmallVector<ir::Dim, 4> targetShape, sourceShape;
  /// Whether only whole axes were moved so far: matched axes have equal extents, even unknown ones.
  bool keepsExtents = true;
  std::vector<ir::Dim> factors;                              // extents
  llvm::SmallVector<llvm::SmallVector<unsigned, 4>, 4> axes; // axis of the target -> its factors
  Coordinates coordinates;                                   // index on each axis of the source
};

/// A value from which data movement alone produces another value.
struct MovementStop {
  ir::Value* value;
  IndexMap map;
  unsigned nodes; ///< number of nodes in between
};

/// Values from which data movement produces `end`, nearest first, starting with `end` itself (with
/// the identity); in a branch also values of the enclosing graphs. At most `limit` nodes are
/// passed. Empty if the rank of `end` is unknown.
std::vector<MovementStop> movementChain(ir::Value& end, unsigned limit = 12);

} // namespace kvopt::analysis
