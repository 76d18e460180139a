// TensorData: the contents of a constant, wherever they are.
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

/// Takes the bytes of a tensor, piece by piece and in order.
using ByteSink = llvm::function_ref<llvm::Error(std::span<const std::byte>)>;

/// The immutable contents of a constant tensor. Element type and extents are always at hand; the
/// bytes are fetched on demand, so a pass that does not look at weights never touches them.
class TensorData {
public:
  virtual ~TensorData() = default;

  ElementType elementType() const { return element; }
  /// Extents, each >= 0, whose product fits in int64_t.
  llvm::ArrayRef<int64_t> shape() const { return extents; }
  int64_t elementCount() const { return count; }
  /// Size of the packed form; nullopt for strings and unknown element types.
  std::optional<int64_t> byteSize() const;

  /// The elements in row-major order as ONNX's `raw_data` packs them (little endian). Valid as long
  /// as this object. Fails for strings, for unknown element types, and when external data is
  /// missing, out of bounds or outside the model's folder.
  virtual llvm::Expected<std::span<const std::byte>> bytes() const = 0;
  /// Hands the same bytes to `sink` until that fails. Contents that are computed are not kept in
  /// memory for it.
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

/// The product of extents; an error when one is negative or the product does not fit in int64_t.
llvm::Expected<int64_t> checkedElementCount(llvm::ArrayRef<int64_t> shape);

/// Bytes of `count` packed elements; an error on overflow or for a type without a packed form.
llvm::Expected<int64_t> checkedByteSize(ElementType type, int64_t count);

/// A tensor that owns its bytes. The number of bytes must be that of type and shape.
llvm::Expected<TensorRef> makeTensor(ElementType type, llvm::ArrayRef<int64_t> shape,
                                     std::vector<std::byte> bytes);

/// Small tensors built by passes: one scalar or one list of int64.
TensorRef int64Tensor(llvm::ArrayRef<int64_t> values);
TensorRef int64Scalar(int64_t value);
TensorRef boolTensor(llvm::ArrayRef<bool> values);
TensorRef floatTensor(llvm::ArrayRef<float> values);
/// A scalar of a floating-point element type (float, double, float16 or bfloat16).
TensorRef floatScalar(ElementType type, double value);
/// The same with `rank` axes of extent one.
TensorRef floatScalar(ElementType type, double value, unsigned rank);

/// All elements of an integer or bool tensor of at most `limit` elements; nullopt when the type is
/// another, the tensor is larger, or its bytes cannot be had.
std::optional<llvm::SmallVector<int64_t, 8>> integerValues(const TensorData& tensor,
                                                           int64_t limit = 4096);

/// All elements of a floating-point tensor (float, double, float16, bfloat16), likewise.
std::optional<llvm::SmallVector<double, 8>> floatValues(const TensorData& tensor,
                                                        int64_t limit = 4096);

/// The one element of a tensor of exactly one element, whatever its rank.
std::optional<double> scalarValue(const TensorData& tensor);

} // namespace kvopt::ir
