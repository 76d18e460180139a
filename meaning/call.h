// What the definition of an operator sees of a node, and what it says of its results.
#pragma once

#include "ir/node.h"
#include "ir/tensor.h"
#include "meaning/tensor.h"

#include <map>
#include <string>

namespace kvopt::meaning {

/// A condition that the definition needs at every index of some extents, or once.
struct Requirement {
  Scalars extents;
  std::function<Scalar(Index)> condition;
  std::string otherwise; ///< what is wrong where it does not hold
};

/// One use of an operator. A definition reads operands and attributes, and sets each result:
///
///   void defineTranspose(Call& call) { call.result(transposed(call[0], call.order())); }
///
/// Where a node is not what ONNX allows, `reject` keeps the first reason, and where it is not
/// defined here, or only for other operands, `refuse` does. Accessors then return defaults, so a
/// definition checks `isRefused` only before it relies on them.
class Call {
public:
  /// Operands that are absent are empty tensors. A value of the host is one that a definition
  /// wants computed once: it returns a tensor whose elements are those of a named value, which are
  /// rounded to the tensor's type if that is wanted.
  using Host = std::function<Tensor(const Tensor& value, bool isRounded)>;

  Call(Formulas& formulas, const ir::Node& node, int64_t opset, std::vector<Tensor> operands,
       Host host);

  Formulas& formulas() const { return formulas_; }
  const ir::Node& node() const { return node_; }
  int64_t opset() const { return opset_; }
  Scalar integer(int64_t value) const { return {formulas_, formulas_.integer(value)}; }
  Scalar real(double value) const { return {formulas_, formulas_.real(value)}; }
  Scalar boolean(bool value) const { return {formulas_, formulas_.boolean(value)}; }
  Scalar zeroOf(ir::ElementType type) const { return number(0, type); }
  Scalar number(double value, ir::ElementType type) const;

  // Operands.

  unsigned count() const { return static_cast<unsigned>(operands_.size()); }
  bool has(unsigned operand) const { return operand < count() && operands_[operand]; }
  /// One that is not there has some axes of extent 1, and the node is rejected.
  const Tensor& operator[](unsigned operand) const;
  unsigned resultCount() const { return static_cast<unsigned>(node_.results().size()); }
  /// Whether the node has a name for the result.
  bool wants(unsigned result) const;
  /// The elements of a list, or the single one of a scalar.
  Scalars elements(unsigned operand);
  /// The same as numbers that are known.
  llvm::SmallVector<int64_t> numbers(unsigned operand);
  /// The only element of an operand of any rank.
  Scalar single(unsigned operand) const;

  // Attributes, with ONNX's defaults. A node with one that the definition never reads is not
  // defined: `ignoreAttributes` names those that change no result.

  bool hasAttribute(llvm::StringRef name) const { return find(name) != nullptr; }
  int64_t integerAttribute(llvm::StringRef name, int64_t otherwise) const {
    find(name);
    return node_.intAttr(name, otherwise);
  }
  /// An element type; the call is refused where ONNX has none of that number.
  ir::ElementType typeAttribute(llvm::StringRef name, ir::ElementType otherwise);
  double realAttribute(llvm::StringRef name, double otherwise) const;
  void ignoreAttributes(std::initializer_list<llvm::StringRef> names) const {
    for (llvm::StringRef name : names)
      find(name);
  }
  /// An attribute of the node that was never read; empty if all were.
  std::string unreadAttribute() const;
  llvm::StringRef textAttribute(llvm::StringRef name, llvm::StringRef otherwise) const {
    find(name);
    return node_.stringAttr(name, otherwise);
  }
  std::optional<llvm::SmallVector<int64_t>> integersAttribute(llvm::StringRef name) const;
  std::optional<llvm::SmallVector<double>> realsAttribute(llvm::StringRef name) const;
  /// The tensor of an attribute as a tensor of numbers.
  Tensor tensorAttribute(llvm::StringRef name);
  /// An axis below `rank`; negative ones count from the end.
  unsigned axis(int64_t written, size_t rank);
  unsigned axisAttribute(llvm::StringRef name, int64_t otherwise, size_t rank) {
    return axis(integerAttribute(name, otherwise), rank);
  }
  /// Integers that are an attribute in early versions and an operand in later ones; none if absent.
  std::optional<llvm::SmallVector<int64_t>> integers(llvm::StringRef attribute, unsigned operand);
  /// The same as axes of a rank, ordered; none if absent.
  std::optional<llvm::SmallVector<unsigned>> axes(llvm::StringRef attribute, unsigned operand,
                                                  size_t rank);

  // Results.

  /// After `refuse` they set nothing: a definition that only knows extents sets them before.
  void result(Tensor tensor) { result(0, std::move(tensor)); }
  void result(unsigned place, Tensor tensor);
  /// Sets the extents of a result whose elements may not be known, or its rank or type alone.
  void extents(unsigned place, ir::ElementType type, Index extents);
  void rank(unsigned place, ir::ElementType type, size_t rank);
  void type(unsigned place, ir::ElementType type);
  /// The element type of a result; `Undefined` if it was not set.
  ir::ElementType typeOf(unsigned place) const {
    return results_[place] ? results_[place].type() : types_[place];
  }
  const std::vector<Tensor>& results() const { return results_; }
  /// Extents of the results that elements decide have a name each, so that others can be equal to
  /// them.
  void nameExtents() { namesExtents_ = true; }
  bool namesExtents() const { return namesExtents_; }
  /// A value that is computed once.
  Tensor named(const Tensor& value) { return host_(value, false); }
  /// The same, rounded to the numbers of its type: for a result that other results are made of.
  Tensor rounded(const Tensor& value) { return host_(value, true); }
  /// One of two extents that must be equal.
  Scalar equalExtents(Scalar a, Scalar b, llvm::StringRef what) {
    return equalExtents(a, b, [&] { return what.str(); });
  }
  Scalar equalExtents(Scalar a, Scalar b, llvm::function_ref<std::string()> what);
  /// ONNX's multidirectional broadcasting, of two extents and of all.
  Scalar broadcastExtent(Scalar a, Scalar b, llvm::function_ref<std::string()> what);
  Scalars broadcastExtents(llvm::ArrayRef<Tensor> tensors);
  /// f of the elements at the same place, after broadcasting.
  Tensor elementwise(llvm::ArrayRef<Tensor> operands, ir::ElementType type,
                     std::function<Scalar(llvm::ArrayRef<Scalar>)> f);

  /// The operand's type, for people: "float[B, 4]".
  std::string text(unsigned operand) const;
  /// Whether an operand that is there has that rank; the node is rejected if not.
  bool hasRank(unsigned operand, size_t rank);

  void require(Scalar condition, std::string otherwise);
  void requireAt(Scalars extents, std::function<Scalar(Index)> condition, std::string otherwise);
  const std::vector<Requirement>& requirements() const { return requirements_; }
  void refuse(std::string reason) const;
  void reject(std::string reason) const;
  bool isRefused() const { return !reason_.empty(); }
  bool isRejected() const { return isRejected_; }
  const std::string& reason() const { return reason_; }

private:
  const ir::Attribute* find(llvm::StringRef name) const {
    read_.push_back(name);
    return node_.attribute(name);
  }

  Formulas& formulas_;
  const ir::Node& node_;
  int64_t opset_;
  std::vector<Tensor> operands_;
  Host host_;
  std::vector<Tensor> results_;
  std::vector<ir::ElementType> types_; ///< of results without extents
  std::vector<Requirement> requirements_;
  bool namesExtents_ = false;
  Tensor absent_;
  mutable std::string reason_;
  mutable bool isRejected_ = false;
  mutable llvm::SmallVector<llvm::StringRef, 8> read_; ///< names of attributes, which are literals
};

/// A tensor of known numbers, which are read when an element is.
Tensor constantTensor(Formulas& formulas, const ir::TensorData& data);

} // namespace kvopt::meaning
