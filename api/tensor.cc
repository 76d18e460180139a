// Conversion of tensors.
#include "api/tensor.h"

#include "support/diagnostic.h"

#include <dlpack/dlpack.h>

#include <algorithm>

namespace kvopt::api {
using namespace ir;
using namespace runtime;

namespace {

/// DLPack code of an element type.
struct TypeCode {
  ElementType element;
  uint8_t code;
  uint8_t bits;
};

constexpr TypeCode typeCodes[] = {
    {ElementType::Float, kDLFloat, 32},  {ElementType::Float16, kDLFloat, 16},
    {ElementType::Double, kDLFloat, 64}, {ElementType::BFloat16, kDLBfloat, 16},
    {ElementType::Int8, kDLInt, 8},      {ElementType::Int16, kDLInt, 16},
    {ElementType::Int32, kDLInt, 32},    {ElementType::Int64, kDLInt, 64},
    {ElementType::UInt8, kDLUInt, 8},    {ElementType::UInt16, kDLUInt, 16},
    {ElementType::UInt32, kDLUInt, 32},  {ElementType::UInt64, kDLUInt, 64},
};
/// Bool of DLPack 0.8 and later, which earlier headers do not name.
constexpr uint8_t boolCode = 6;

std::optional<ElementType> elementOf(DLDataType type) {
  if (type.lanes != 1)
    return std::nullopt;
  if (type.code == boolCode && type.bits == 8)
    return ElementType::Bool;
  for (const TypeCode& known : typeCodes)
    if (known.code == type.code && known.bits == type.bits)
      return known.element;
  return std::nullopt;
}

std::optional<DLDataType> dlpackTypeOf(ElementType element) {
  if (element == ElementType::Bool)
    return DLDataType{boolCode, 8, 1};
  for (const TypeCode& known : typeCodes)
    if (known.element == element)
      return DLDataType{known.code, known.bits, 1};
  return std::nullopt;
}

/// More axes than any model's input has.
constexpr int32_t mostAxes = 64;

llvm::Expected<TensorView> checkedView(ElementType element, int32_t rank, const int64_t* shape,
                                       const int64_t* strides, std::byte* data) {
  if (!memoryWidth(element))
    return usageError("a tensor has the element type {}, which the runtime does not hold",
                      static_cast<int>(element));
  if (rank < 0 || rank > mostAxes)
    return usageError("a tensor has {} axes", rank);
  if (rank != 0 && !shape)
    return usageError("a tensor has {} axes and no shape", rank);
  const llvm::ArrayRef<int64_t> extents(shape, static_cast<size_t>(rank));
  if (auto bytes = checkedTensorBytes(element, extents); !bytes)
    return bytes.takeError();
  else if (*bytes != 0 && !data)
    return usageError("a tensor has no data");
  TensorView view = TensorView::contiguous(element, extents, data);
  if (!strides)
    return view;
  for (int32_t axis = 0; axis < rank; ++axis) {
    if (strides[axis] < 0)
      return usageError("a tensor has a negative stride");
    view.strides[static_cast<size_t>(axis)] = strides[axis];
  }
  return view;
}

/// A DLPack tensor with what it points to.
struct OwnedTensor {
  Tensor tensor;
  DLManagedTensor managed;
};

} // namespace

llvm::Expected<TensorView> viewOf(const kvopt_tensor& tensor) {
  return checkedView(static_cast<ElementType>(tensor.dtype), tensor.rank, tensor.shape,
                     tensor.strides, static_cast<std::byte*>(tensor.data));
}

llvm::Expected<TensorView> viewOf(const DLManagedTensor& tensor) {
  const DLTensor& held = tensor.dl_tensor;
  const auto device = held.device.device_type;
  if (device != kDLCPU && device != kDLCUDAHost)
    return usageError("a tensor is not in the memory of the CPU");
  const std::optional<ElementType> element = elementOf(held.dtype);
  if (!element)
    return usageError("a tensor has elements of DLPack's type {} with {} bits, {} to a lane",
                      held.dtype.code, held.dtype.bits, held.dtype.lanes);
  auto* data = static_cast<std::byte*>(held.data);
  return checkedView(*element, held.ndim, held.shape, held.strides,
                     data ? data + held.byte_offset : nullptr);
}

kvopt_tensor borrowed(const TensorView& view) {
  return {view.data, static_cast<int32_t>(view.element), static_cast<int32_t>(view.rank()),
          view.shape.data(), view.strides.data()};
}

llvm::Expected<DLManagedTensor*> toDlpack(Tensor tensor) {
  const std::optional<DLDataType> type = dlpackTypeOf(tensor.view.element);
  if (!type)
    return unsupported("elements of type {} have no DLPack type", dtypeName(tensor.view.element));
  auto owned = std::make_unique<OwnedTensor>();
  owned->tensor = std::move(tensor);
  TensorView& view = owned->tensor.view;
  owned->managed.dl_tensor = {
      view.data,         {kDLCPU, 0},         static_cast<int32_t>(view.rank()), *type,
      view.shape.data(), view.strides.data(),
      /*byte_offset=*/0};
  owned->managed.manager_ctx = owned.get();
  owned->managed.deleter = [](DLManagedTensor* managed) {
    delete static_cast<OwnedTensor*>(managed->manager_ctx);
  };
  return &owned.release()->managed;
}

} // namespace kvopt::api
