// Formats of constant weights, and the constants that products read instead.
#include "runtime/exec/weight_forms.h"
#include "runtime/memory/element_storage.h"

#include "ir/late_element_types.h"
#include "ir/node.h"
#include "runtime/linear/pack_codes.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace kvopt::runtime {
using namespace ir;
using namespace linear;

namespace {

using Kind = WeightForm::Kind;

const Value* operandOf(const Node& node, unsigned index) {
  return index < node.operands().size() ? node.operands()[index].value() : nullptr;
}

/// Extents of a result whose shape was inferred completely.
std::optional<Extents> fixedShape(const Value& value) {
  if (!value.type().hasRank())
    return std::nullopt;
  Extents shape;
  for (const Dim& dim : value.type().shape()) {
    const std::optional<int64_t> extent = dim.value();
    if (!extent)
      return std::nullopt;
    shape.push_back(*extent);
  }
  return shape;
}

/// Product of the extents of a constant, which was checked.
int64_t countOf(llvm::ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

WeightForm transposeOf(const Node& node, const WeightForm& operand) {
  const size_t rank = operand.shape.size();
  const std::optional<llvm::ArrayRef<int64_t>> perm = node.intsAttr("perm");
  if (rank < 2 || (perm ? perm->size() != rank : rank != 2))
    return {};
  bool isKept = perm.has_value(), isSwapped = true;
  for (size_t axis = 0; perm && axis < rank; ++axis) {
    const auto from = static_cast<size_t>((*perm)[axis]);
    isKept &= from == axis;
    isSwapped &= from == (axis + 2 < rank ? axis : 2 * rank - 3 - axis);
  }
  if (isKept)
    return operand;
  if (!isSwapped)
    return {};
  WeightForm form = operand;
  std::swap(form.shape[rank - 2], form.shape[rank - 1]);
  form.transposed = !form.transposed;
  return form;
}

/// Reshape and similar operators.
WeightForm reshaped(const Node& node, const WeightForm& operand) {
  const std::optional<Extents> shape = fixedShape(node.results().front());
  if (!shape || countOf(*shape) != countOf(operand.shape))
    return {};
  const bool keepsMatrix = shape->size() >= 2 && operand.shape.size() >= 2 &&
                           llvm::ArrayRef<int64_t>(*shape).take_back(2) ==
                               llvm::ArrayRef<int64_t>(operand.shape).take_back(2);
  if (!keepsMatrix && (operand.transposed || operand.kind != Kind::Floats))
    return {};
  WeightForm form = operand;
  form.shape = *shape;
  return form;
}

/// Only if no element is rounded.
WeightForm castOf(const Node& node, const WeightForm& operand) {
  const auto target = static_cast<ElementType>(node.intAttr("to", 0));
  if (target == operand.element)
    return operand;
  if (operand.kind != Kind::Floats || target != ElementType::Float)
    return {};
  WeightForm form = operand;
  form.element = target;
  return form;
}

WeightForm dequantized(const Node& node) {
  const Value* codes = operandOf(node, 0);
  const Value* scale = operandOf(node, 1);
  const Value* zero = operandOf(node, 2);
  if (!codes || !scale || !codes->constant() || !scale->constant() || (zero && !zero->constant()))
    return {};
  const TensorData& data = *codes->constant();
  const std::optional<unsigned> bits = bitWidth(data.elementType());
  const int64_t asked = node.intAttr("output_dtype", 0);
  const int64_t axis = node.intAttr("axis", 1);
  if (!isInteger(data.elementType()) || !bits || (*bits != 2 && *bits != 4 && *bits != 8) ||
      data.shape().size() != 2 || scale->constant()->elementType() != ElementType::Float ||
      (zero && zero->constant()->elementType() != data.elementType()) ||
      (asked != 0 && static_cast<ElementType>(asked) != ElementType::Float) || axis < -2 ||
      axis > 1 || node.intAttr("block_size", 0) < 0)
    return {};
  WeightForm form;
  form.kind = Kind::Codes;
  form.source = codes;
  form.element = ElementType::Float;
  form.shape.assign(data.shape().begin(), data.shape().end());
  form.scale = scale;
  form.zero = zero;
  form.axis = axis < 0 ? axis + 2 : axis;
  form.block = node.intAttr("block_size", 0);
  return form;
}

std::shared_ptr<ConstantWeights> floatWeights(const WeightForm& form) {
  const TensorRef constant = form.source->constantRef();
  llvm::Expected<std::span<const std::byte>> bytes = constant->bytes();
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return nullptr;
  }
  const int64_t width = *byteWidth(constant->elementType());
  if (static_cast<int64_t>(bytes->size()) / width != constant->elementCount() ||
      reinterpret_cast<uintptr_t>(bytes->data()) % static_cast<uintptr_t>(width) != 0)
    return nullptr;
  auto weights = std::make_shared<ConstantWeights>();
  weights->storage = *storageOf(constant->elementType());
  weights->data = bytes->data();
  weights->transposed = form.transposed;
  weights->owners.push_back(constant);
  return weights;
}

/// Packs codes into blocks.
class CodePacker {
public:
  CodePacker(const WeightForm& packedForm, bool transposesSource, ConstantMemory& packedMemory,
             ThreadPool& workers)
      : form(packedForm), transposed(transposesSource), memory(packedMemory), pool(workers) {}

  std::shared_ptr<ConstantWeights> pack() {
    if (!readCodes() || !layOut() || !packNumbers() || !packScales())
      return nullptr;
    auto weights = std::make_shared<ConstantWeights>();
    weights->blocks = blocks;
    weights->owners = std::move(owners);
    return weights;
  }

private:
  std::optional<std::span<const std::byte>> bytesOf(const Value& value) {
    const TensorRef constant = value.constantRef();
    llvm::Expected<std::span<const std::byte>> bytes = constant->bytes();
    if (bytes)
      return *bytes;
    llvm::consumeError(bytes.takeError());
    return std::nullopt;
  }
  std::byte* take(int64_t bytes) {
    llvm::Expected<ConstantMemory::Block> block = memory.take(bytes);
    if (!block) {
      llvm::consumeError(block.takeError());
      return nullptr;
    }
    owners.push_back(std::move(block->owner));
    return block->data;
  }

  bool readCodes() {
    const TensorData& data = *form.source->constant();
    const auto bytes = bytesOf(*form.source);
    if (!bytes)
      return false;
    codes.bytes = reinterpret_cast<const uint8_t*>(bytes->data());
    codes.rows = data.shape()[0];
    codes.columns = data.shape()[1];
    codes.bits = *bitWidth(data.elementType());
    codes.isSigned = data.elementType() == ElementType::Int8 ||
                     data.elementType() == ElementType::Int4 || data.elementType() == int2Type;
    return static_cast<int64_t>(bytes->size()) >= (data.elementCount() * codes.bits + 7) / 8;
  }

  /// Determines the extents of the blocks. Returns false unless there is one scale for each block.
  bool layOut() {
    constexpr int64_t most = int64_t{1} << 31;
    blocks.columns = transposed ? codes.columns : codes.rows;
    blocks.inner = transposed ? codes.rows : codes.columns;
    blocks.bits = codes.bits;
    if (blocks.columns <= 0 || blocks.inner <= 0 || blocks.columns > most || blocks.inner > most)
      return false;
    const int64_t innerAxis = transposed ? 0 : 1;
    const TensorData& scale = *form.scale->constant();
    scalePerTensor = scale.elementCount() == 1 && scale.shape().size() <= 1;
    blocks.blockSize = form.block;
    if (scalePerTensor || form.block == 0)
      blocks.blockSize = (blocks.inner + 15) / 16 * 16;
    if (blocks.blockSize % 16 != 0 || blocks.blockSize > most)
      return false;
    blocks.blocks = (blocks.inner + blocks.blockSize - 1) / blocks.blockSize;
    if (scalePerTensor)
      return true;
    if (form.block == 0)
      return form.axis != innerAxis && scale.shape().size() == 1 &&
             scale.shape()[0] == blocks.columns;
    return form.axis == innerAxis && scale.shape().size() == 2 &&
           scale.shape()[static_cast<size_t>(innerAxis)] == blocks.blocks &&
           scale.shape()[static_cast<size_t>(1 - innerAxis)] == blocks.columns;
  }

  bool packNumbers() {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(blocks.columns, blocks.rowBytes(), &bytes))
      return false;
    std::byte* memoryBytes = take(bytes);
    if (!memoryBytes)
      return false;
    auto* numbers = reinterpret_cast<uint8_t*>(memoryBytes);
    constexpr int64_t strip = 256;
    pool.parallelFor((blocks.columns + strip - 1) / strip, [&](int64_t unit) {
      packCodes(codes, transposed, blocks, unit * strip,
                std::min((unit + 1) * strip, blocks.columns), numbers);
    });
    blocks.numbers = numbers;
    return true;
  }

  /// Index in the operand of the scale of block `b` of column `n`.
  int64_t scaleIndex(int64_t n, int64_t b) const {
    if (scalePerTensor)
      return 0;
    if (form.block == 0)
      return n;
    return transposed ? b * blocks.columns + n : n * blocks.blocks + b;
  }

  /// Zero point `index`, as an unsigned packed number.
  float zeroAt(std::span<const std::byte> bytes, int64_t index) const {
    const int64_t perByte = 8 / codes.bits;
    const auto shift = static_cast<unsigned>(index % perByte * codes.bits);
    const unsigned mask = (1u << codes.bits) - 1;
    const unsigned flip = codes.isSigned ? 1u << (codes.bits - 1) : 0;
    const auto byte = std::to_integer<unsigned>(bytes[static_cast<size_t>(index / perByte)]);
    return static_cast<float>(((byte >> shift) & mask) ^ flip);
  }

  bool packScales() {
    const auto scaleBytes = bytesOf(*form.scale);
    const auto zeroBytes = form.zero ? bytesOf(*form.zero) : std::span<const std::byte>();
    const int64_t scaleCount = form.scale->constant()->elementCount();
    const int64_t count = blocks.columns * blocks.blocks;
    if (!scaleBytes || !zeroBytes ||
        scaleBytes->size() < static_cast<size_t>(scaleCount) * sizeof(float) ||
        (form.zero && form.zero->constant()->elementCount() != scaleCount))
      return false;
    auto* scales = reinterpret_cast<float*>(take(count * int64_t{sizeof(float)}));
    // Signed codes without zero points have their zero in the middle.
    const bool hasZeros = form.zero || !codes.isSigned;
    auto* zeros =
        reinterpret_cast<float*>(hasZeros ? take(count * int64_t{sizeof(float)}) : nullptr);
    if (!scales || (hasZeros && !zeros))
      return false;
    for (int64_t n = 0; n < blocks.columns; ++n)
      for (int64_t b = 0; b < blocks.blocks; ++b) {
        const int64_t from = scaleIndex(n, b), to = n * blocks.blocks + b;
        std::memcpy(scales + to, scaleBytes->data() + from * int64_t{sizeof(float)}, sizeof(float));
        if (zeros)
          zeros[to] = form.zero ? zeroAt(*zeroBytes, from) : 0.0f;
      }
    blocks.scales = scales;
    blocks.zeros = zeros;
    blocks.zeroKind = zeros ? BlockWeights::Zeros::floats : BlockWeights::Zeros::middle;
    return true;
  }

  const WeightForm& form;
  const bool transposed;
  ConstantMemory& memory;
  ThreadPool& pool;
  CodeMatrix codes;
  BlockWeights blocks;
  bool scalePerTensor = false;
  llvm::SmallVector<std::shared_ptr<const void>, 3> owners;
};

} // namespace

WeightForm WeightForm::ofConstant(const Value& value) {
  const TensorData* data = value.constant();
  if (!data || !storageOf(data->elementType()))
    return {};
  WeightForm form;
  form.kind = Kind::Floats;
  form.source = &value;
  form.element = data->elementType();
  form.shape.assign(data->shape().begin(), data->shape().end());
  return form;
}

WeightForm WeightForm::ofResult(const Node& node, const WeightForm& operand) {
  if (node.is("DequantizeLinear"))
    return dequantized(node);
  if (operand.kind == Kind::None)
    return {};
  if (node.is("Identity"))
    return operand;
  if (node.is("Transpose"))
    return transposeOf(node, operand);
  if (node.is("Cast"))
    return castOf(node, operand);
  if (node.is("Reshape") || node.is("Unsqueeze") || node.is("Squeeze") || node.is("Flatten"))
    return reshaped(node, operand);
  return {};
}

std::shared_ptr<const ConstantWeights> weightsOf(const WeightForm& form, const Node& product,
                                                 ConstantMemory& memory, ThreadPool& pool) {
  if (form.kind == Kind::None || form.shape.size() < 2 || llvm::is_contained(form.shape, 0))
    return nullptr;
  std::shared_ptr<ConstantWeights> weights;
  if (form.kind == Kind::Floats) {
    weights = floatWeights(form);
    if (weights && weights->storage == simd::FloatStorage::f32 &&
        countOf(llvm::ArrayRef<int64_t>(form.shape).drop_back(2)) == 1)
      weights->strips = std::make_shared<const KeptStrips>(memory.shared_from_this());
  } else {
    // Blocks form one matrix, in which every row of W is a row in memory.
    if (countOf(llvm::ArrayRef<int64_t>(form.shape).drop_back(2)) != 1)
      return nullptr;
    const bool isStoredByColumn = (product.intAttr("transB", 0) != 0) != form.transposed;
    weights = CodePacker(form, !isStoredByColumn, memory, pool).pack();
  }
  if (weights)
    weights->described = TensorView::contiguous(form.element, form.shape, nullptr);
  return weights;
}

} // namespace kvopt::runtime
