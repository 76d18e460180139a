// IndexMap: which element of one tensor an element of another is, when only data movement lies
// between the two (Transpose, Reshape, Expand, Tile, Slice, Gather with fixed indices, …).
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
/// and repeating leaves factors unread. Extents are Dims; every statement holds for all sizes at
/// which the target has an element, and what cannot be proved is not said.
class IndexMap {
public:
  /// The map of a tensor onto itself.
  static IndexMap identity(llvm::ArrayRef<ir::Dim> shape);
  /// The map of the slice at `index` of `axis`, which keeps that axis with extent one, onto the
  /// tensor it is cut from.
  static IndexMap ofPart(llvm::ArrayRef<ir::Dim> shape, unsigned axis, int64_t index);

  /// Extents of the source that the map has reached so far.
  llvm::ArrayRef<ir::Dim> source() const { return sourceShape; }
  llvm::ArrayRef<ir::Dim> target() const { return targetShape; }

  /// Makes the moved operand of `node` the source, which up to now is the node's result `result`.
  /// False, and the map is as it was, if the node is no data movement or its map cannot be proved.
  bool through(const ir::Node& node, unsigned result = 0);
  /// Makes the source a tensor of the same elements in the same order, of shape `shape`.
  bool throughReshape(llvm::ArrayRef<ir::Dim> shape);
  /// Makes the operand of a Concat that holds the target the source, and returns which one that is.
  /// nullopt, and the map is as it was, if the elements may come from several.
  std::optional<unsigned> throughPartOf(const ir::Node& concat);

  /// Every element is itself, and the shapes are provably the same.
  bool isIdentity() const;
  /// `perm` of the Transpose that makes the target of the source, if one does.
  std::optional<llvm::SmallVector<unsigned, 4>> transposition() const;
  /// Whether the target is a Reshape of the source: equal in row-major order.
  bool isReshape() const;

  /// What `repetition` found.
  struct Repetition {
    /// The target's shape before the repetition.
    llvm::SmallVector<ir::Dim, 4> shape;
    /// How the source becomes a tensor of that shape: by Transpose<perm> (the identity included) …
    std::optional<llvm::SmallVector<unsigned, 4>> perm;
    /// … or by Reshape. At least one of the two.
    bool byReshape = false;
  };
  enum class Repeat {
    Entries, ///< each entry N times: index i reads entry floor(i / N)
    Whole,   ///< all entries N times over: index i reads entry i mod G
  };
  /// The target as a repetition along `axis` of something that shape[axis] says the length of;
  /// every other axis is read one to one. There may be one repetition only. nullopt where that
  /// cannot be proved.
  std::optional<Repetition> repetition(unsigned axis, Repeat order) const;

  /// What `part` found.
  struct Part {
    llvm::SmallVector<unsigned, 4> perm;
    int64_t index;
  };
  /// The target, of extent one along `axis`, as the slice at `index` of that axis of
  /// Transpose<perm> of the source; nullopt where that cannot be proved.
  std::optional<Part> part(unsigned axis) const;

  using SymbolLookup = llvm::function_ref<std::optional<int64_t>(llvm::StringRef)>;
  /// The source's index of one target index; nullopt where `lookup` lacks a symbol, or on overflow.
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
  /// A range with a negative step, of an axis of which one index is read.
  bool throughReversed(unsigned axis, const ir::MovementRange& range, const ir::Dim& extent);
  bool throughAny(const ir::Movement& movement, const ir::Value& result);

  void setSource(llvm::ArrayRef<ir::Dim> shape) { sourceShape.assign(shape.begin(), shape.end()); }
  bool isUnit(unsigned factor) const { return factors[factor].value() == 1; }
  /// Cuts `factor` into one of extent factors[factor] / inner, outside, and one of extent `inner`.
  void split(unsigned factor, const ir::Dim& outer, const ir::Dim& inner);
  /// form = quotient * divisor + remainder with 0 <= remainder < divisor. May cut a factor instead;
  /// forms taken from the map before are stale then.
  Division divide(const Coordinate& form, const ir::Dim& divisor, Coordinate& quotient,
                  Coordinate& remainder);
  /// Replaces the coordinate of `axis` by its remainder (or quotient).
  bool reduceModulo(unsigned axis, const ir::Dim& divisor);
  bool reduceQuotient(unsigned axis, const ir::Dim& divisor);
  static Coordinate scaled(const Coordinate& form, const ir::Dim& by);
  static void add(Coordinate& sum, const Coordinate& form);
  /// Row-major position of coordinates in a shape; nullopt when an extent it needs is unknown.
  static std::optional<Coordinate> linear(llvm::ArrayRef<Coordinate> coordinates,
                                          llvm::ArrayRef<ir::Dim> shape);
  /// The coordinate that the listed factors, outermost first, make up.
  std::optional<Coordinate> formOf(llvm::ArrayRef<unsigned> list) const;
  /// Equal for all indices; terms of extent one do not count.
  bool isSame(const Coordinate& a, const Coordinate& b) const;
  bool isZero(const Coordinate& form) const;
  /// The number that a coordinate is for all indices.
  std::optional<int64_t> fixedIndex(const Coordinate& form) const;
  /// Matches the coordinates of the source with `forms` one to one; extents of one may move freely.
  std::optional<llvm::SmallVector<unsigned, 4>> matchAxes(llvm::ArrayRef<Coordinate> forms,
                                                          llvm::ArrayRef<ir::Dim> extents) const;

  /// `repetition`, or with no axis the demand that nothing is repeated.
  std::optional<Repetition> repetitionOf(std::optional<unsigned> repeatedAxis, Repeat order) const;
  /// The factors that are read, if they come before (or after) those that are not.
  static std::optional<llvm::SmallVector<unsigned, 4>>
  readFactors(llvm::ArrayRef<unsigned> axis, const std::vector<bool>& isRead, Repeat order);

  llvm::SmallVector<ir::Dim, 4> targetShape, sourceShape;
  /// Only whole axes were moved so far: matched axes have equal extents, also unknown ones.
  bool keepsExtents = true;
  std::vector<ir::Dim> factors;                              // extents
  llvm::SmallVector<llvm::SmallVector<unsigned, 4>, 4> axes; // of the target: its factors
  Coordinates coordinates;                                   // of the source
};

/// A value from which another one is made by data movement alone.
struct MovementStop {
  ir::Value* value;
  IndexMap map;
  unsigned nodes; ///< how many lie between
};

/// The values that `end` is made from by data movement, nearest first, `end` itself (with the
/// identity) being the first; in a branch also values of the graphs around it. At most `limit`
/// nodes are passed. Empty if the rank of `end` is unknown.
std::vector<MovementStop> movementChain(ir::Value& end, unsigned limit = 12);

} // namespace kvopt::analysis
