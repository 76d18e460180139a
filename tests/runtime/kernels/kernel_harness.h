// Harness: runs the kernel of a one-node graph on tensors that the test owns.
#pragma once

#include "ir/model.h"
#include "ir/op.h"
#include "runtime/exec/kernel.h"
#include "runtime/memory/narrow_codes.h"
#include "support/format.h"
#include "support/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

namespace kvopt {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Bytes at a multiple of 64, with a guard behind them that nothing may write.
class GuardedMemory {
public:
  explicit GuardedMemory(size_t count)
      : size(count),
        memory(static_cast<std::byte*>(::operator new(count + guardBytes, std::align_val_t(64)))) {
    std::memset(memory, fill, count + guardBytes);
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() {
    for (size_t i = 0; i < guardBytes; ++i)
      if (memory[size + i] != std::byte{fill}) {
        ADD_FAILURE() << "byte " << i << " behind a tensor of " << size << " bytes was written";
        break;
      }
    ::operator delete(memory, std::align_val_t(64));
  }
  std::byte* data() { return memory; }

private:
  static constexpr size_t guardBytes = 64;
  static constexpr unsigned char fill = 0xCD;
  size_t size;
  std::byte* memory;
};

/// A contiguous tensor. Copies share the memory; clone() does not.
class TestTensor {
public:
  TestTensor() = default;
  TestTensor(ir::ElementType element, runtime::Extents shape)
      : elementType(element), extents(std::move(shape)) {
    memory = std::make_shared<GuardedMemory>(bytes());
  }
  /// `values` in row-major order, rounded to the element type.
  TestTensor(ir::ElementType element, runtime::Extents shape, llvm::ArrayRef<double> values)
      : TestTensor(element, std::move(shape)) {
    EXPECT_EQ(static_cast<int64_t>(values.size()), count());
    for (int64_t i = 0; i < count(); ++i)
      set(i, values[static_cast<size_t>(i)]);
  }

  ir::ElementType element() const { return elementType; }
  const runtime::Extents& shape() const { return extents; }
  runtime::TensorView view() const {
    return runtime::TensorView::contiguous(elementType, extents, memory ? memory->data() : nullptr);
  }
  std::byte* data() const { return memory->data(); }
  size_t bytes() const { return static_cast<size_t>(view().byteSize()); }
  int64_t count() const { return view().elementCount(); }

  /// The same memory under another shape.
  TestTensor reshaped(runtime::Extents shape) const {
    TestTensor result = *this;
    result.extents = std::move(shape);
    EXPECT_EQ(result.count(), count());
    return result;
  }
  TestTensor clone() const {
    TestTensor result(elementType, extents);
    if (bytes() != 0)
      std::memcpy(result.data(), data(), bytes());
    return result;
  }
  bool sameBytes(const TestTensor& other) const {
    return elementType == other.elementType && extents == other.extents &&
           (bytes() == 0 || std::memcmp(data(), other.data(), bytes()) == 0);
  }

  double get(int64_t index) const {
    const std::byte* at = data() + index * *runtime::memoryWidth(elementType);
    if (runtime::isFloatCode(elementType))
      return double{runtime::numbersOfCodes(elementType)[read<uint8_t>(at)]};
    switch (const ir::ElementType held = runtime::inMemoryAs(elementType)) {
    case ir::ElementType::Float:
      return double{read<float>(at)};
    case ir::ElementType::Double:
      return read<double>(at);
    case ir::ElementType::Float16:
      return double{f16ToFloat(read<uint16_t>(at))};
    case ir::ElementType::BFloat16:
      return double{bf16ToFloat(read<uint16_t>(at))};
    case ir::ElementType::Int64:
      return static_cast<double>(read<int64_t>(at));
    case ir::ElementType::UInt64:
      return static_cast<double>(read<uint64_t>(at));
    case ir::ElementType::Int32:
      return static_cast<double>(read<int32_t>(at));
    case ir::ElementType::UInt32:
      return static_cast<double>(read<uint32_t>(at));
    case ir::ElementType::Int16:
      return static_cast<double>(read<int16_t>(at));
    case ir::ElementType::UInt16:
      return static_cast<double>(read<uint16_t>(at));
    case ir::ElementType::Int8:
      return static_cast<double>(read<int8_t>(at));
    case ir::ElementType::UInt8:
    case ir::ElementType::Bool:
      return static_cast<double>(read<uint8_t>(at));
    default:
      ADD_FAILURE() << "element type " << ir::onnxName(held).str();
      return 0;
    }
  }
  void set(int64_t index, double value) {
    std::byte* at = data() + index * *runtime::memoryWidth(elementType);
    if (runtime::isFloatCode(elementType))
      return write(at, runtime::codeOfNumber(elementType, static_cast<float>(value), {}));
    switch (const ir::ElementType held = runtime::inMemoryAs(elementType)) {
    case ir::ElementType::Float:
      return write(at, static_cast<float>(value));
    case ir::ElementType::Double:
      return write(at, value);
    case ir::ElementType::Float16:
      return write(at, floatToF16(static_cast<float>(value)));
    case ir::ElementType::BFloat16:
      return write(at, floatToBf16(static_cast<float>(value)));
    case ir::ElementType::Int64:
      return write(at, static_cast<int64_t>(value));
    case ir::ElementType::UInt64:
      return write(at, static_cast<uint64_t>(value));
    case ir::ElementType::Int32:
      return write(at, static_cast<int32_t>(value));
    case ir::ElementType::UInt32:
      return write(at, static_cast<uint32_t>(value));
    case ir::ElementType::Int16:
      return write(at, static_cast<int16_t>(value));
    case ir::ElementType::UInt16:
      return write(at, static_cast<uint16_t>(value));
    case ir::ElementType::Int8:
      return write(at, static_cast<int8_t>(value));
    case ir::ElementType::UInt8:
    case ir::ElementType::Bool:
      return write(at, static_cast<uint8_t>(value));
    default:
      ADD_FAILURE() << "element type " << ir::onnxName(held).str();
    }
  }
  std::vector<double> values() const {
    std::vector<double> result;
    for (int64_t i = 0; i < count(); ++i)
      result.push_back(get(i));
    return result;
  }

private:
  template <class T> static T read(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  template <class T> static void write(std::byte* at, T value) {
    std::memcpy(at, &value, sizeof value);
  }

  ir::ElementType elementType = ir::ElementType::Undefined;
  runtime::Extents extents;
  std::shared_ptr<GuardedMemory> memory;
};

inline TestTensor floats(runtime::Extents shape, llvm::ArrayRef<double> values) {
  return {ir::ElementType::Float, std::move(shape), values};
}
inline TestTensor int64s(runtime::Extents shape, llvm::ArrayRef<double> values) {
  return {ir::ElementType::Int64, std::move(shape), values};
}
/// A list of int64.
inline TestTensor int64s(llvm::ArrayRef<double> values) {
  return int64s({static_cast<int64_t>(values.size())}, values);
}
inline TestTensor bools(runtime::Extents shape, llvm::ArrayRef<double> values) {
  return {ir::ElementType::Bool, std::move(shape), values};
}

/// Numbers in [-magnitude, magnitude), the same for the same seed.
inline TestTensor randomTensor(ir::ElementType element, runtime::Extents shape, unsigned seed,
                               double magnitude = 1.0) {
  TestTensor result(element, std::move(shape));
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(-magnitude, magnitude);
  for (int64_t i = 0; i < result.count(); ++i)
    result.set(i, uniform(generator));
  return result;
}

inline const ir::OpRegistry& testOperators() {
  static const std::unique_ptr<const ir::OpRegistry> registry = [] {
    auto filled = std::make_unique<ir::OpRegistry>();
    registerAll(*filled);
    return filled;
  }();
  return *registry;
}

inline const runtime::KernelRegistry& testKernels() {
  static const std::unique_ptr<const runtime::KernelRegistry> registry = [] {
    auto filled = std::make_unique<runtime::KernelRegistry>();
    registerAll(*filled);
    return filled;
  }();
  return *registry;
}

/// All kernels but those of kvopt's own operators, which then run their function bodies.
inline const runtime::KernelRegistry& standardKernels() {
  static const std::unique_ptr<const runtime::KernelRegistry> registry = [] {
    auto filled = std::make_unique<runtime::KernelRegistry>();
    for (const runtime::Kernel* kernel : testKernels().all())
      if (kernel->op.domain() != ir::kvoptDomain)
        filled->add(kernel->op, kernel->since, kernel->run, kernel->until).acceptsStrides =
            kernel->acceptsStrides;
    return filled;
  }();
  return *registry;
}

/// What one call of a kernel did.
struct KernelResult {
  std::string error; ///< empty on success
  std::vector<TestTensor> outputs;
  int64_t cacheBytesWritten = 0;
  size_t scratchBytes = 0;

  bool ok() const { return error.empty(); }
};

/// One node and its operands:  KernelCall("Concat").in(a).in(b).attr("axis", 1).run()
class KernelCall {
public:
  explicit KernelCall(const char* op, int64_t opset = 18)
      : opName(op), imports{{"", opset}, {ir::kvoptDomain, 1}, {"com.microsoft", 1}} {}

  KernelCall& in(TestTensor tensor, bool overwritable = false) {
    operands.push_back({std::move(tensor), true, overwritable});
    return *this;
  }
  KernelCall& absent() {
    operands.push_back({});
    return *this;
  }
  /// Operand `index` is this one instead.
  KernelCall& replace(unsigned index, TestTensor tensor) {
    operands[index] = {std::move(tensor), true, false};
    return *this;
  }
  /// Operand `index` is absent.
  KernelCall& without(unsigned index) {
    operands[index] = {};
    return *this;
  }
  /// Operand `index` is this one instead, whose memory may be overwritten.
  KernelCall& overwrite(unsigned index, TestTensor tensor) {
    operands[index] = {std::move(tensor), true, true};
    return *this;
  }
  KernelCall& attr(const char* name, ir::Attribute value) {
    attributes.push_back({name, std::move(value)});
    return *this;
  }
  KernelCall& attr(const char* name, int value) { return attr(name, ir::Attribute::ofInt(value)); }
  KernelCall& attr(const char* name, double value) {
    return attr(name, ir::Attribute::ofFloat(static_cast<float>(value)));
  }
  KernelCall& attr(const char* name, const char* value) {
    return attr(name, ir::Attribute::ofString(value));
  }
  KernelCall& attr(const char* name, std::vector<int64_t> value) {
    return attr(name, ir::Attribute::ofInts(std::move(value)));
  }
  KernelCall& results(unsigned count) {
    wanted.assign(count, true);
    return *this;
  }
  /// Nobody reads this result.
  KernelCall& unread(unsigned result) {
    wanted[result] = false;
    return *this;
  }
  /// As if on `count` threads, the pieces of work in reverse order.
  KernelCall& threads(unsigned count) {
    threadCount = count;
    return *this;
  }

  /// Runs the kernel; before that, once for each of its requests for memory with that one refused,
  /// which must be an error.
  KernelResult run() const;

private:
  void expectErrorsWithoutMemory(const runtime::Kernel& kernel, const ir::Node& node) const;

  struct Operand {
    TestTensor tensor;
    bool present = false;
    bool overwritable = false;
  };
  class Context;

  const char* opName;
  ir::OpsetImports imports;
  std::vector<Operand> operands;
  std::vector<ir::NamedAttribute> attributes;
  std::vector<bool> wanted = {true};
  unsigned threadCount = 1;
};

class KernelCall::Context final : public runtime::KernelContext {
public:
  /// Refuses the `refusedRequest`-th request for memory.
  Context(const ir::Node& node, const KernelCall& kernelCall, int64_t refusedRequest = -1)
      : runtime::KernelContext(node), call(kernelCall), refused(refusedRequest) {
    for (const Operand& operand : call.operands)
      views.push_back(operand.tensor.view());
    given.resize(call.wanted.size());
    result.outputs.resize(call.wanted.size());
  }

  const runtime::TensorView* input(unsigned index) const override {
    return index < views.size() && call.operands[index].present ? &views[index] : nullptr;
  }
  llvm::Expected<runtime::TensorView> output(unsigned index, ir::ElementType element,
                                             llvm::ArrayRef<int64_t> shape) override {
    llvm::Expected<int64_t> count = ir::checkedElementCount(shape);
    if (!count)
      return error(llvm::toString(count.takeError()));
    llvm::Expected<int64_t> bytes = ir::checkedByteSize(element, *count);
    if (!bytes)
      return error(llvm::toString(bytes.takeError()));
    if (*bytes > maxBytes || isRefused())
      return error("memory is short");
    return give(index, TestTensor(element, runtime::Extents(shape.begin(), shape.end())));
  }
  llvm::Error outputView(unsigned index, unsigned operand, llvm::ArrayRef<int64_t> shape) override {
    give(index,
         call.operands[operand].tensor.reshaped(runtime::Extents(shape.begin(), shape.end())));
    return llvm::Error::success();
  }
  llvm::Expected<runtime::TensorView> outputInPlace(unsigned index, unsigned operand) override {
    const Operand& source = call.operands[operand];
    if (isRefused())
      return error("memory is short");
    // A call that is to fail must not spoil what the next one reads.
    return give(index, source.overwritable && refused < 0 ? source.tensor : source.tensor.clone());
  }
  llvm::Expected<std::span<std::byte>> scratch(size_t bytes) override {
    if (bytes > static_cast<size_t>(maxBytes) || isRefused())
      return error("memory is short");
    result.scratchBytes += bytes;
    temporary.push_back(std::make_unique<GuardedMemory>(bytes));
    return std::span(temporary.back()->data(), bytes);
  }
  void parallelFor(int64_t count, llvm::function_ref<void(int64_t)> body) override {
    for (int64_t i = 0; i < count; ++i)
      body(threads() > 1 ? count - 1 - i : i);
  }
  unsigned threads() const override { return call.threadCount; }
  void noteCacheWrite(int64_t bytes) override { result.cacheBytesWritten += bytes; }

  bool hasRefused() const { return refused >= 0 && requests > refused; }

  KernelResult finish(llvm::Error error) {
    if (error)
      result.error = llvm::toString(std::move(error));
    else
      for (unsigned i = 0; i < given.size(); ++i)
        EXPECT_EQ(given[i], wants(i)) << "result " << i;
    return std::move(result);
  }

private:
  static constexpr int64_t maxBytes = int64_t{1} << 28;

  bool isRefused() { return requests++ == refused; }

  runtime::TensorView give(unsigned index, TestTensor tensor) {
    EXPECT_LT(index, given.size());
    EXPECT_FALSE(given[index]) << "result " << index << " was given twice";
    given[index] = true;
    result.outputs[index] = std::move(tensor);
    return result.outputs[index].view();
  }

  const KernelCall& call;
  const int64_t refused;
  int64_t requests = 0;
  std::vector<runtime::TensorView> views;
  std::vector<bool> given;
  std::vector<std::unique_ptr<GuardedMemory>> temporary;
  KernelResult result;
};

inline void KernelCall::expectErrorsWithoutMemory(const runtime::Kernel& kernel,
                                                  const ir::Node& node) const {
  for (int64_t request = 0;; ++request) {
    Context context(node, *this, request);
    llvm::Error error = kernel.execute(context);
    bool hasFailed = static_cast<bool>(error);
    llvm::consumeError(std::move(error));
    if (!context.hasRefused())
      return;
    EXPECT_TRUE(hasFailed) << "request " << request << " for memory was refused";
  }
}

inline KernelResult KernelCall::run() const {
  ir::GraphContext graphContext(testOperators());
  ir::Graph graph(graphContext, imports);
  llvm::SmallVector<ir::Value*, 8> values;
  for (const Operand& operand : operands)
    values.push_back(operand.present
                         ? &graph.addInput(formatted("x{}", values.size()),
                                           ir::TensorType::fixed(operand.tensor.element(),
                                                                 operand.tensor.shape()))
                         : nullptr);
  ir::OpName name(opName);
  ir::Node& node = graph.createFresh(name, values, static_cast<unsigned>(wanted.size()));
  for (const ir::NamedAttribute& attribute : attributes)
    node.setAttribute(attribute.name, attribute.value.clone());
  for (unsigned i = 0; i < wanted.size(); ++i)
    if (wanted[i])
      graph.addOutput(node.result(i));
  const runtime::Kernel* kernel = testKernels().find(name, graph.opsetVersion(name.domain()));
  KernelResult result;
  if (!kernel) {
    ADD_FAILURE() << "no kernel for " << name.str();
    result.error = "no kernel";
    return result;
  }
  expectErrorsWithoutMemory(*kernel, node);
  Context context(node, *this);
  return context.finish(kernel->execute(context));
}

/// Expects success, the shape, and every element within `tolerance` (absolute); NaN equals NaN.
inline void expectTensor(const KernelResult& result, llvm::ArrayRef<int64_t> shape,
                         llvm::ArrayRef<double> expected, double tolerance = 0,
                         unsigned index = 0) {
  ASSERT_EQ(result.error, "");
  const TestTensor& tensor = result.outputs.at(index);
  ASSERT_EQ(tensor.shape(), runtime::Extents(shape.begin(), shape.end()));
  ASSERT_EQ(static_cast<size_t>(tensor.count()), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    double value = tensor.get(static_cast<int64_t>(i));
    bool same = value == expected[i] || (std::isnan(value) && std::isnan(expected[i])) ||
                std::abs(value - expected[i]) <= tolerance;
    EXPECT_TRUE(same) << "element " << i << " is " << value << ", not " << expected[i];
  }
}

/// Expects an error that contains `text`.
inline void expectError(const KernelResult& result, const char* text) {
  EXPECT_NE(result.error.find(text), std::string::npos)
      << "the error is '" << result.error << "', not '… " << text << " …'";
}

} // namespace kvopt
