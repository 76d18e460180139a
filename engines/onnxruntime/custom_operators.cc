// One entry for each operator and combination of element types. ONNX Runtime joins entries of one
// name, and refuses a model with types that no entry has, even if its operators have bodies.
#include "engines/onnxruntime/custom_operators.h"

#include "engines/onnxruntime/cache_attention.h"

#include <climits>
#include <deque>
#include <memory>

namespace kvopt::onnxruntime {

namespace {

/// Element types of query and output, of new rows, and of caches.
struct TypeCombination {
  ElementType query;
  ElementType fresh;
  ElementType cache;
};

constexpr ElementType f32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
constexpr ElementType f16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
constexpr ElementType bf16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16;
constexpr ElementType int8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
constexpr ElementType uint8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;

constexpr TypeCombination numberTypes[] = {
    {f32, f32, f32}, {f16, f16, f16},  {bf16, bf16, bf16}, {f32, f16, f16},   {f32, bf16, bf16},
    {f16, f32, f32}, {bf16, f32, f32}, {f32, int8, int8},  {f16, int8, int8}, {bf16, int8, int8},
};
constexpr TypeCombination codeTypes[] = {
    {f32, f32, int8},  {f16, f16, int8},  {bf16, bf16, int8},
    {f32, f32, uint8}, {f16, f16, uint8}, {bf16, bf16, uint8},
};

/// The kernel of one node.
struct OperatorKernel {
  CallSite site;
  std::unique_ptr<Operation> operation;
};

class CacheOperatorEntry : public OrtCustomOp {
public:
  CacheOperatorEntry(const CacheForm& ofOperator, const TypeCombination& of);

private:
  static const CacheOperatorEntry& of(const OrtCustomOp* op) {
    return *static_cast<const CacheOperatorEntry*>(op);
  }
  ElementType inputType(unsigned index) const;
  ElementType outputType(unsigned index) const;
  std::unique_ptr<OperatorKernel> kernel(const OrtKernelInfo* info) const;

  CacheForm form;
  TypeCombination types;
};

ElementType CacheOperatorEntry::inputType(unsigned index) const {
  if (index == 0)
    return types.query;
  if (index <= form.sides())
    return types.fresh;
  if (index == form.pastLength())
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
  if (index == form.mask())
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED; // boolean or floating-point
  if (index == form.sinks())
    return f32;
  const bool isScale = form.hasCodes && (index - form.past(0)) % 2 == 1;
  return isScale ? f32 : types.cache;
}

ElementType CacheOperatorEntry::outputType(unsigned index) const {
  return index == 0 ? types.query : inputType(form.past(0) + index - 1);
}

/// The node's attributes of the operators, as far as they are given.
std::map<std::string, AttributeValue> attributesOf(const OrtKernelInfo* info) {
  const OrtApi& api = Ort::GetApi();
  std::map<std::string, AttributeValue> attributes;
  for (const char* name :
       {"causal", "window", "mask_boolean", "key_axis", "value_axis", "v_width", "v_offset"}) {
    int64_t value = 0;
    if (const Ort::Status status(api.KernelInfoGetAttribute_int64(info, name, &value));
        status.IsOK())
      attributes.emplace(name, value);
  }
  for (const char* name : {"scale", "softcap"}) {
    float value = 0;
    if (const Ort::Status status(api.KernelInfoGetAttribute_float(info, name, &value));
        status.IsOK())
      attributes.emplace(name, value);
  }
  return attributes;
}

std::string nameOf(const OrtKernelInfo* info) {
  const OrtApi& api = Ort::GetApi();
  size_t size = 0;
  Ort::ThrowOnError(api.KernelInfo_GetNodeName(info, nullptr, &size));
  std::string name(size, '\0');
  Ort::ThrowOnError(api.KernelInfo_GetNodeName(info, name.data(), &size));
  return name.c_str();
}

std::vector<int> placesUpTo(size_t count) {
  std::vector<int> places;
  for (size_t i = 0; i < count; ++i)
    places.push_back(static_cast<int>(i));
  return places;
}

std::unique_ptr<OperatorKernel> CacheOperatorEntry::kernel(const OrtKernelInfo* info) const {
  NodeDescription node;
  node.name = nameOf(info);
  node.domain = kvoptDomain;
  node.op = form.op;
  node.attributes = attributesOf(info);
  size_t inputs = 0, outputs = 0;
  Ort::ThrowOnError(Ort::GetApi().KernelInfo_GetInputCount(info, &inputs));
  Ort::ThrowOnError(Ort::GetApi().KernelInfo_GetOutputCount(info, &outputs));
  for (unsigned i = 0; i < inputs; ++i)
    node.inputs.push_back({true, inputType(i), false});
  node.outputs.assign(outputs, true);
  auto result = std::make_unique<OperatorKernel>();
  result->site.node = node.fullName() + " '" + node.name + "'";
  result->site.places = {placesUpTo(inputs), placesUpTo(outputs)};
  Offer offer = cacheAttention(node);
  if (!offer.operation)
    throw Ort::Exception("kvopt: " + result->site.node + " is not supported: " + offer.reason,
                         ORT_NOT_IMPLEMENTED);
  result->operation = std::move(offer.operation);
  return result;
}

CacheOperatorEntry::CacheOperatorEntry(const CacheForm& ofOperator, const TypeCombination& of_)
    : OrtCustomOp{}, form(ofOperator), types(of_) {
  version = apiVersion();
  GetName = [](const OrtCustomOp* op) { return of(op).form.op; };
  GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  GetInputTypeCount = [](const OrtCustomOp* op) { return size_t{of(op).form.operands()}; };
  GetInputType = [](const OrtCustomOp* op, size_t index) {
    return of(op).inputType(static_cast<unsigned>(index));
  };
  GetOutputTypeCount = [](const OrtCustomOp* op) { return size_t{of(op).form.results()}; };
  GetOutputType = [](const OrtCustomOp* op, size_t index) {
    return of(op).outputType(static_cast<unsigned>(index));
  };
  GetInputCharacteristic = [](const OrtCustomOp* op, size_t index) {
    return index < of(op).form.mask() ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
  };
  GetOutputCharacteristic = [](const OrtCustomOp*, size_t index) {
    return index == 0 ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
  };
  GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
  GetStartVersion = [](const OrtCustomOp*) { return 1; };
  GetEndVersion = [](const OrtCustomOp*) { return INT_MAX; };
  CreateKernelV2 = [](const OrtCustomOp* op, const OrtApi*, const OrtKernelInfo* info,
                      void** kernel) {
    return guarded([&] { *kernel = of(op).kernel(info).release(); });
  };
  KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
    return guarded([&] {
      const auto& own = *static_cast<const OperatorKernel*>(kernel);
      Call call(context, own.site);
      own.operation->compute(call);
    });
  };
  KernelDestroy = [](void* kernel) { delete static_cast<OperatorKernel*>(kernel); };
}

/// All entries and their domain, which sessions refer to until the process ends.
struct CustomOperators {
  std::deque<CacheOperatorEntry> entries;
  Ort::CustomOpDomain domain{kvoptDomain};

  CustomOperators() {
    for (const CacheForm& form : cacheForms)
      for (const TypeCombination& types : form.hasCodes
                                              ? std::span<const TypeCombination>(codeTypes)
                                              : std::span<const TypeCombination>(numberTypes))
        domain.Add(&entries.emplace_back(form, types));
  }
};

} // namespace

void addCustomOperators(OrtSessionOptions* options) {
  static const auto* const all = new CustomOperators;
  Ort::ThrowOnError(Ort::GetApi().AddCustomOpDomain(options, all->domain));
}

} // namespace kvopt::onnxruntime
