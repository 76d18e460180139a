// Validation, strides and parallel execution of one attention.
#include "runtime/attention/attention_call.h"
#include "runtime/kernels/support/integer_input.h"
#include "runtime/memory/element_storage.h"
#include "runtime/simd/attention/attention_jobs.h"
#include "support/format.h"

#include <algorithm>
#include <new>

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;
using namespace simd;

namespace {

int64_t capacityOf(const AttentionOperands& operands) {
  return operands.key.shape[operands.keyTransposed ? 3 : 2];
}

int64_t longestOf(const AttentionOperands& operands) {
  if (!operands.segments.empty())
    return operands.segmentTokens;
  if (operands.totalLengths.empty())
    return capacityOf(operands);
  return *std::max_element(operands.totalLengths.begin(), operands.totalLengths.end());
}

CodeForm codeFormOf(const AttentionOperands& operands) {
  const bool isPacked = operands.keyScales && operands.key.element == ElementType::UInt8;
  return isPacked ? operands.fourBitForm : CodeForm::bytes;
}

/// Extent of the mask for axis `axis` of [B,H,S,T].
int64_t maskExtent(const TensorView& mask, unsigned axis) {
  unsigned missing = 4 - mask.rank();
  return axis < missing ? 1 : mask.shape[axis - missing];
}

int64_t maskStride(const TensorView& mask, unsigned axis) {
  unsigned missing = 4 - mask.rank();
  return axis < missing || mask.shape[axis - missing] == 1 ? 0 : mask.strides[axis - missing];
}

llvm::Error checkMask(const KernelContext& context, const AttentionOperands& operands) {
  const TensorView& mask = *operands.mask;
  if (mask.element != ElementType::Bool && !storageOf(mask.element))
    return context.error(
        formatted("a mask of element type {} is not supported", onnxName(mask.element)));
  if (mask.rank() > 4)
    return context.error(formatted("the mask has rank {}, at most 4 is possible", mask.rank()));
  const TensorView& query = operands.query;
  int64_t extents[] = {query.shape[0], query.shape[1], query.shape[2],
                       operands.maskTokens.value_or(longestOf(operands))};
  for (unsigned axis = 0; axis < 4; ++axis) {
    int64_t extent = maskExtent(mask, axis);
    if (extent != 1 && extent != extents[axis])
      return context.error(formatted("the mask's extent {} on axis {} of [B,H,S,T] is neither 1 "
                                     "nor {}",
                                     extent, axis, extents[axis]));
  }
  return llvm::Error::success();
}

} // namespace

RowStrides rowStrides(const TensorView& tensor) {
  return {tensor.strides[0], tensor.strides[1], tensor.strides[2]};
}

llvm::Expected<std::span<KeyValueSegment>> scratchSegments(KernelContext& context, size_t count) {
  auto memory = context.scratch(count * sizeof(KeyValueSegment));
  if (!memory)
    return memory.takeError();
  return std::span(new (memory->data()) KeyValueSegment[count], count);
}

llvm::Expected<AttentionOperands> attentionOperands(const KernelContext& context, unsigned mask,
                                                    unsigned sinks) {
  const Node& node = context.node();
  AttentionOperands operands;
  operands.query = context.in(0);
  operands.mask = context.input(mask);
  operands.sinks = context.input(sinks);
  bool isBoolean = operands.mask && operands.mask->element == ElementType::Bool;
  if (operands.mask && isBoolean != (node.intAttr("mask_boolean", 0) != 0))
    return context.error("mask_boolean does not agree with the mask's element type");
  operands.scale = node.floatAttr("scale", 1.0f);
  operands.causal = node.intAttr("causal", 0) != 0;
  operands.window = node.intAttr("window", 0);
  operands.softcap = node.floatAttr("softcap", 0.0f);
  return operands;
}

void readBytesAsNumbers(AttentionOperands& operands) {
  if (operands.key.element != ElementType::Int8 || operands.value.element != ElementType::Int8)
    return;
  static constexpr float one = 1.0f;
  const auto sameForAll = [](const TensorView& rows, unsigned sequenceAxis) {
    TensorView scales;
    scales.element = ElementType::Float;
    scales.shape = {rows.shape[0], rows.shape[1], rows.shape[sequenceAxis]};
    scales.strides = {0, 0, 0};
    // Scales are only read.
    scales.data = reinterpret_cast<std::byte*>(const_cast<float*>(&one));
    return scales;
  };
  operands.keyScales = sameForAll(operands.key, operands.keyTransposed ? 3 : 2);
  operands.valueScales = sameForAll(operands.value, 2);
}

llvm::Error checkAttention(const KernelContext& context, const AttentionOperands& operands) {
  const TensorView& query = operands.query;
  const TensorView& key = operands.key;
  const TensorView& value = operands.value;
  if (query.rank() != 4 || key.rank() != 4 || value.rank() != 4)
    return context.error("query, key and value must have rank 4");
  const bool isQuantized = operands.keyScales.has_value();
  const CodeForm codeForm = codeFormOf(operands);
  const bool isPacked = codeForm != CodeForm::bytes;
  assert(isQuantized == operands.valueScales.has_value());
  if (!storageOf(query.element) || key.element != value.element ||
      (isQuantized ? key.element != ElementType::Int8 && !isPacked : !storageOf(key.element)))
    return context.error(formatted("element types {}, {} and {} of query, key and value are not "
                                   "supported together",
                                   onnxName(query.element), onnxName(key.element),
                                   onnxName(value.element)));
  int64_t keyWidth = key.shape[operands.keyTransposed ? 2 : 3];
  if (query.shape[0] != key.shape[0] || key.shape[0] != value.shape[0])
    return context.error(formatted("batch sizes {}, {} and {} of query, key and value differ",
                                   query.shape[0], key.shape[0], value.shape[0]));
  if (key.shape[1] != value.shape[1])
    return context.error(
        formatted("{} key heads and {} value heads", key.shape[1], value.shape[1]));
  if (key.shape[1] == 0 ? query.shape[1] != 0 : query.shape[1] % key.shape[1] != 0)
    return context.error(formatted("{} query heads are not a multiple of {} key/value heads",
                                   query.shape[1], key.shape[1]));
  if (isPacked && (operands.keyTransposed || operands.fourBitColumns < 0 ||
                   value.shape[3] != codeRowBytes(codeForm, operands.fourBitColumns)))
    return context.error(
        "rows of four-bit codes must have contiguous columns, and the size of these "
        "codes in bytes");
  if (codeRowBytes(codeForm, query.shape[3]) != keyWidth)
    return context.error(
        formatted("query width {} and key width {} differ", query.shape[3], keyWidth));
  if (keyWidth == 0)
    return context.error("a head width of 0 is not supported");
  if (capacityOf(operands) != value.shape[2])
    return context.error(
        formatted("{} key rows and {} value rows", capacityOf(operands), value.shape[2]));
  if (!operands.totalLengths.empty() &&
      operands.totalLengths.size() != static_cast<size_t>(query.shape[0]))
    return context.error("one length per batch row is needed");
  for (int64_t length : operands.totalLengths)
    if (length < 0 || length > capacityOf(operands))
      return context.error(formatted("a length of {} does not fit a capacity of {} rows", length,
                                     capacityOf(operands)));
  if (operands.window < 0)
    return context.error(formatted("a window of {} rows is impossible", operands.window));
  if (operands.sinks &&
      (operands.sinks->element != ElementType::Float ||
       operands.sinks->elementCount() != query.shape[1] || !operands.sinks->isContiguous()))
    return context.error("sinks must be one float per query head");
  return operands.mask ? checkMask(context, operands) : llvm::Error::success();
}

AttentionView attentionView(const AttentionOperands& operands, const TensorView& output) {
  const TensorView& query = operands.query;
  AttentionView view;
  view.batches = query.shape[0];
  view.queryHeads = query.shape[1];
  view.kvHeads = operands.key.shape[1];
  view.queryRows = query.shape[2];
  view.keyWidth = query.shape[3];
  view.codeForm = codeFormOf(operands);
  view.valueWidth = view.isPacked() ? operands.fourBitColumns : operands.value.shape[3];
  view.totalLength = longestOf(operands);
  view.totalLengths = operands.totalLengths.empty() ? nullptr : operands.totalLengths.data();
  view.queryStorage = *storageOf(query.element);
  if (operands.keyScales) {
    view.keyScales = operands.keyScales->as<float>();
    view.valueScales = operands.valueScales->as<float>();
    view.keyScaleStrides = rowStrides(*operands.keyScales);
    view.valueScaleStrides = rowStrides(*operands.valueScales);
  } else {
    view.cacheStorage = *storageOf(operands.key.element);
  }
  view.outputStorage = *storageOf(output.element);
  view.query = query.data;
  view.key = operands.key.data;
  view.value = operands.value.data;
  view.output = output.data;
  view.queryStrides = rowStrides(query);
  view.keyStrides = rowStrides(operands.key);
  view.valueStrides = rowStrides(operands.value);
  view.outputStrides = rowStrides(output);
  view.keyTransposed = operands.keyTransposed;
  view.segments = operands.segments;
  view.scale = operands.scale;
  view.causal = operands.causal;
  view.window = operands.window;
  view.softcap = operands.softcap;
  if (operands.mask) {
    const TensorView& mask = *operands.mask;
    bool isBoolean = mask.element == ElementType::Bool;
    view.maskKind = isBoolean ? MaskKind::boolean : MaskKind::additive;
    if (!isBoolean)
      view.maskStorage = *storageOf(mask.element);
    view.mask = mask.data;
    view.maskStrides = {maskStride(mask, 0), maskStride(mask, 1), maskStride(mask, 2),
                        maskStride(mask, 3)};
  }
  view.sinks = operands.sinks ? operands.sinks->as<float>() : nullptr;
  return view;
}

llvm::Error runAttentions(KernelContext& context, llvm::ArrayRef<AttentionView> views) {
  auto memory = context.scratch(AttentionJobs::bytes(views.size()));
  if (!memory)
    return memory.takeError();
  AttentionJobs jobs({views.data(), views.size()}, *memory);
  // Scratch memory for the largest possible number of workers, so that its size does not depend on
  // the past.
  const int64_t mostWorkers = jobs.mostWorkers(context.threads());
  for (size_t job = 0; job < jobs.size(); ++job) {
    std::optional<size_t> bytes = jobs.scratchBytes(job, mostWorkers);
    if (!bytes)
      return context.error("the scratch memory does not fit in the address space");
    auto scratch = context.scratch(*bytes);
    if (!scratch)
      return scratch.takeError();
    jobs.start(job, *scratch);
  }
  const int64_t workers = jobs.workers(context.threads());
  context.parallelFor(workers, [&](int64_t worker) { jobs.work(worker, workers); });
  return llvm::Error::success();
}

llvm::Error runAttention(KernelContext& context, const AttentionOperands& operands,
                         const TensorView& output) {
  if (output.elementCount() == 0)
    return llvm::Error::success();
  return runAttentions(context, attentionView(operands, output));
}

llvm::Error attentionResult(KernelContext& context, const AttentionOperands& operands,
                            unsigned result) {
  if (llvm::Error error = checkAttention(context, operands))
    return error;
  const TensorView& query = operands.query;
  auto output =
      context.output(result, query.element,
                     {query.shape[0], query.shape[1], query.shape[2], operands.value.shape[3]});
  if (!output)
    return output.takeError();
  return runAttention(context, operands, *output);
}

} // namespace kvopt::runtime
