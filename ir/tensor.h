// TensorData: contents of a constant, wherever they are stored.
#pragma once

#include "ir/element_type.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvopt::ir {

/// Receives the bytes of a tensor in order, in pieces.
using ByteSink = llvm::function_ref<llvm::Error(std::span<const std::byte>)>;

/// Immutable contents of a constant tensor. Element type and extents are always available; the
/// bytes are loaded on demand, so passes that do not look at weights never load them.
class TensorData {
public:
  virtual ~TensorData() = default;

  ElementType elementType() const { return element; }
  /// Extents, each >= 0, whose product fits into int64_t.
  llvm::ArrayRef<int64_t> shape() const { return extents; }
  int64_t elementCount() const { return count; }
  /// Size of the packed form in bytes; nullopt for strings and unknown element types.
  std::optional<int64_t> byteSize() const;

  /// Elements in row-major order, packed as in ONNX's `raw_data` (little endian). Valid as long as
  /// this object. Fails for strings, for unknown element types, and if external data is missing,
  /// out of bounds, or outside the model's folder.
  virtual llvm::Expected<std::span<const std::byte>> bytes() const = 0;
  /// Passes the same bytes to `sink` until it fails. Computed contents are not kept in memory.
  virtual llvm::Error stream(ByteSink sink) const;

protected:
  TensorData(ElementType elementType, llvm::SmallVector<int64_t, 4> shape, int64_t elementCount)
      : element(elementType), extents(std::move(shape)), count(elementCount) {}

private:
  ElementType element;
  llvm::SmallVector<int64_t, 4> extents;
  int64_t count;
};

using TensorRef = std::shared_ptr<const TensorData>;

/// Product of extents; an error if one is negative or the product does not fit into int64_t.
llvm::Expected<int64_t> checkedElementCount(llvm::ArrayRef<int64_t> shape);

/// Size of `count` packed elements in bytes; an error on overflow or for a type without a packed
/// form.
llvm::Expected<int64_t> checkedByteSize(ElementType type, int64_t count);

/// A tensor that owns its bytes. Their number must match type and shape.
llvm::Expected<TensorRef> makeTensor(ElementType type, llvm::ArrayRef<int64_t> shape,
                                     std::vector<std::byte> bytes);

/// Small tensors for passes: a scalar or a list of int64.
TensorRef int64Tensor(llvm::ArrayRef<int64_t> values);
TensorRef int64Scalar(int64_t value);
TensorRef boolTensor(llvm::ArrayRef<bool> values);
TensorRef floatTensor(llvm::ArrayRef<float> values);
/// A scalar of a floating-point element type (float, double, float16 or bfloat16).
TensorRef floatScalar(ElementType type, double value);
/// The same with `rank` axes of extent 1.
TensorRef floatScalar(ElementType type, double value, unsigned rank);

/// Elements of an integer or bool tensor of at most `limit` elements; nullopt if the type differs,
/// the tensor is larger, or its bytes are unavailable.
std::optional<llvm::SmallVector<int64_t, 8>> integerValues(const TensorData& tensor,
                                                           int64_t limit = 4096);

/// Elements of a floating-point tensor (float, double, float16, bfloat16), with the same limits.
std::optional<llvm::SmallVector<double, 8>> floatValues(const TensorData& tensor,
                                                        int64_t limit = 4096);

/// Single element of a tensor with one element, of any rank.
std::optional<double> scalarValue(const TensorData& tensor);

} // namespace kvopt::ir
