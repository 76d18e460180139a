// Formulas as loops over numbers: many elements of a result at a time.
#pragma once

#include "ir/element_type.h"
#include "meaning/expression/formulas.h"

#include <array>
#include <memory>

namespace kvopt::meaning {

/// A contiguous tensor in memory, in which elements of named values are found.
struct Array {
  ir::ElementType type = ir::ElementType::Undefined;
  llvm::SmallVector<int64_t, 6> extents;
  const std::byte* data = nullptr;
};

/// One formula of a tensor's element, compiled once and evaluated in blocks of its elements. Each
/// node is evaluated only where it is needed: of a choice that is the same in a whole block, one
/// side. A reduction is a loop around the nodes that read its index.
///
/// Reals are doubles, whatever the types of operands, and rounded once, when they are stored.
class Loops {
public:
  /// Where the elements of the named value of that number are; null if there are none.
  using Find = std::function<const Array*(int64_t value)>;

  /// `indices` are those of the result, for its extents. The formulas must exist as long as this.
  Loops(const Formulas& formulas, Expr element, llvm::ArrayRef<Expr> indices,
        llvm::ArrayRef<int64_t> extents, const Find& find);
  ~Loops();

  /// Whether every part of the formula has numbers. If not, why.
  bool isComplete() const { return reason_.empty(); }
  const std::string& reason() const { return reason_; }

  /// Writes all elements, one after the other, as `type`.
  void store(ir::ElementType type, std::byte* data);
  /// Whether a boolean holds at all elements.
  bool holdsEverywhere();
  /// The only element of a result without axes, as an integer.
  int64_t single();

private:
  struct Step;
  struct Lanes;
  class Block;

  /// How far a formula goes before it is refused.
  static constexpr size_t mostSteps = 200000;
  static constexpr size_t mostLanes = 512;

  uint32_t compile(Expr root, const Find& find);
  void forBlocks(llvm::function_ref<bool(int64_t first, size_t count)> use);
  void setIndices(int64_t first, size_t count);

  Lanes& evaluate(uint32_t step);
  bool isCurrent(const Step& step) const;
  void compute(Step& step);
  void computePolynomial(Step& step);
  void computeProduct(Step& step);
  void compareSum(Step& step);
  void computeElement(Step& step);
  void computeReduction(Step& step);
  void computeSums(Step& step, int64_t extent);
  void computeLast(Step& step);
  void computeSelect(Step& step);
  void computeFunction(Step& step);
  template <class F> void combine(Step& step, F f);
  template <class F> static void withReals(const Lanes& a, const Lanes& b, size_t lanes, F f);
  static void applyTo(double* list, Function function, const Lanes& a, const Lanes& b,
                      size_t lanes);
  bool divideRamp(Step& step);
  double magnitude(uint32_t number);
  void bind(uint32_t level, int64_t value);

  const Formulas& formulas_;
  llvm::SmallVector<Expr, 6> indices_;
  llvm::SmallVector<int64_t, 6> extents_;
  int64_t count_ = 1; ///< of all elements
  std::vector<Step> steps_;
  llvm::DenseMap<uint32_t, uint32_t> numbers_; ///< of the steps of formulas
  std::vector<uint32_t> indexSteps_;           ///< of the result's indices, where they are read
  uint32_t root_ = 0;
  size_t lanes_ = 1;              ///< elements of the block
  uint64_t clock_ = 1;            ///< counts changes of indices
  std::vector<uint64_t> changed_; ///< by level; 0 is the block
  std::vector<int64_t> bound_;    ///< values of bound indices, by level
  /// The bound index, if any, that runs over the lanes instead of elements of the result.
  uint32_t laneLevel_ = 0;
  std::string reason_;
};

} // namespace kvopt::meaning
