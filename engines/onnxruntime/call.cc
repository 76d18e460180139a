// Operands, memory and threads of ONNX Runtime's kernel context.
#include "engines/onnxruntime/call.h"

#include "runtime/simd/attention/attention_jobs.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <thread>

namespace kvopt::onnxruntime {

namespace {

void check(OrtStatus* status) { Ort::ThrowOnError(status); }

Tensor tensorOf(const OrtValue* value) {
  const OrtApi& api = Ort::GetApi();
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api.GetTensorTypeAndShape(value, &info));
  const Ort::TensorTypeAndShapeInfo owner(info);
  Tensor tensor;
  tensor.type = owner.GetElementType();
  tensor.shape = owner.GetShape();
  // Data of inputs are only read, but the interface of both is the same.
  void* data = nullptr;
  check(api.GetTensorMutableData(const_cast<OrtValue*>(value), &data));
  tensor.data = static_cast<std::byte*>(data);
  return tensor;
}

} // namespace

Call::Call(OrtKernelContext* kernelContext, const CallSite& site)
    : context(kernelContext), site_(site) {}

int64_t Call::mostThreads() {
  static const int64_t count = std::max<int64_t>(1, std::thread::hardware_concurrency());
  return count;
}

Call::~Call() {
  for (void* block : memory)
    allocator->Free(allocator, block);
  if (allocator)
    Ort::GetApi().ReleaseAllocator(allocator);
}

void Call::fail(const std::string& message) const {
  throw Ort::Exception("kvopt: " + site_.node + ": " + message, ORT_INVALID_ARGUMENT);
}

/// Null for an omitted operand.
const OrtValue* Call::valueOf(unsigned operand) const {
  const int place = placeOf(site_.places.inputs, operand);
  const OrtValue* value = nullptr;
  if (place >= 0)
    check(Ort::GetApi().KernelContext_GetInput(context, static_cast<size_t>(place), &value));
  return value;
}

bool Call::has(unsigned operand) const { return valueOf(operand) != nullptr; }

Tensor Call::input(unsigned operand) const {
  const OrtValue* value = valueOf(operand);
  if (!value)
    fail("operand " + std::to_string(operand) + " is missing");
  return tensorOf(value);
}

std::vector<int64_t> Call::integers(unsigned operand) const {
  const Tensor tensor = input(operand);
  const auto count = static_cast<size_t>(tensor.count());
  if (tensor.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32)
    return {tensor.as<int32_t>(), tensor.as<int32_t>() + count};
  if (tensor.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64)
    return {tensor.as<int64_t>(), tensor.as<int64_t>() + count};
  fail("operand " + std::to_string(operand) + " is " + elementName(tensor.type) +
       "; it should be int32 or int64");
}

int64_t Call::integer(unsigned operand) const {
  const std::vector<int64_t> all = integers(operand);
  if (all.size() != 1)
    fail("operand " + std::to_string(operand) + " must hold one integer");
  return all.front();
}

const float* Call::floats(const Tensor& tensor) {
  const std::optional<simd::FloatStorage> storage = storageOf(tensor.type);
  if (!storage)
    fail(std::string("an operand is ") + elementName(tensor.type) +
         "; it should be float, float16 or bfloat16");
  if (*storage == simd::FloatStorage::f32)
    return tensor.as<float>();
  auto* numbers = scratchTensor(ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, tensor.shape).as<float>();
  loadNumbers(tensor.data, *storage, tensor.count(), numbers);
  return numbers;
}

Tensor Call::output(unsigned result, ElementType type, const Shape& shape) {
  const int place = placeOf(site_.places.outputs, result);
  if (place < 0)
    return scratchTensor(type, shape);
  OrtValue* value = nullptr;
  check(Ort::GetApi().KernelContext_GetOutput(context, static_cast<size_t>(place), shape.data(),
                                              shape.size(), &value));
  if (!value)
    return scratchTensor(type, shape);
  Tensor tensor = tensorOf(value);
  if (tensor.type != type || tensor.shape != shape)
    fail("result " + std::to_string(result) + " is bound to " + elementName(tensor.type) +
         textOf(tensor.shape) + "; it should be " + elementName(type) + textOf(shape));
  return tensor;
}

std::span<std::byte> Call::scratch(int64_t bytes) {
  if (bytes < 0)
    fail("the scratch memory does not fit in the address space");
  if (bytes == 0)
    return {};
  if (!allocator) {
    static const Ort::MemoryInfo cpu =
        Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
    check(Ort::GetApi().KernelContext_GetAllocator(context, cpu, &allocator));
  }
  memory.reserve(memory.size() + 1);
  void* block = allocator->Alloc(allocator, static_cast<size_t>(bytes));
  if (!block)
    throw std::bad_alloc();
  memory.push_back(block);
  return {static_cast<std::byte*>(block), static_cast<size_t>(bytes)};
}

Tensor Call::scratchTensor(ElementType type, const Shape& shape) {
  int64_t bytes = elementBytes(type);
  for (const int64_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes))
      fail("the scratch memory does not fit in the address space");
  return {type, shape, scratch(bytes).data()};
}

void Call::run(int64_t count, void (*body)(void*, size_t), void* data) {
  // Engines before 1.17 do not lend their threads.
  constexpr uint32_t firstWithThreads = 17;
  if (count > 1 && apiVersion() >= firstWithThreads)
    return check(Ort::GetApi().KernelContext_ParallelFor(context, body, static_cast<size_t>(count),
                                                         0, data));
  for (int64_t index = 0; index < count; ++index)
    body(data, static_cast<size_t>(index));
}

void Call::attend(std::span<const simd::AttentionView> views) {
  const auto bytes = static_cast<int64_t>(simd::AttentionJobs::bytes(views.size()));
  simd::AttentionJobs jobs(views, scratch(bytes));
  const int64_t workers = jobs.workers(mostThreads());
  for (size_t job = 0; job < jobs.size(); ++job) {
    const std::optional<size_t> size = jobs.scratchBytes(job, workers);
    if (!size || *size > static_cast<size_t>(INT64_MAX))
      fail("the scratch memory does not fit in the address space");
    jobs.start(job, scratch(static_cast<int64_t>(*size)));
  }
  parallelFor(workers, [&](int64_t worker) { jobs.work(worker, workers); });
}

void Call::log(OrtLoggingLevel level, const std::string& message) const {
  constexpr uint32_t firstWithLoggers = 17;
  if (apiVersion() < firstWithLoggers)
    return;
  const OrtLogger* logger = nullptr;
  if (OrtStatus* status = Ort::GetApi().KernelContext_GetLogger(context, &logger))
    Ort::GetApi().ReleaseStatus(status);
  logLine(logger, level, "kvopt: " + site_.node + ": " + message);
}

} // namespace kvopt::onnxruntime
