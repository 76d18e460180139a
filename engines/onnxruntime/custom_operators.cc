// One entry for each operator and combination of element types. ONNX Runtime joins entries of one
// name, and refuses a model with types that no entry has, even if its operators have bodies.
#include "engines/onnxruntime/custom_operators.h"

#include "engines/onnxruntime/kvopt_operator.h"

#include <algorithm>
#include <climits>
#include <deque>
#include <memory>

namespace kvopt::onnxruntime {

namespace {

/// The kernel of one node.
struct OperatorKernel {
  CallSite site;
  std::unique_ptr<Operation> operation;
};

class OperatorEntry : public OrtCustomOp {
public:
  OperatorEntry(const KvoptOperator& operatorOfEntry, const OperatorTypes& combination);

private:
  static const OperatorEntry& of(const OrtCustomOp* op) {
    return *static_cast<const OperatorEntry*>(op);
  }
  std::unique_ptr<OperatorKernel> kernel(const OrtKernelInfo* info) const;

  const KvoptOperator& known;
  const OperatorTypes& types;
};

OrtCustomOpInputOutputCharacteristic characteristicOf(const TypedFormal& formal) {
  switch (formal.count) {
  case TypedFormal::Count::one:
    return INPUT_OUTPUT_REQUIRED;
  case TypedFormal::Count::optional:
    return INPUT_OUTPUT_OPTIONAL;
  case TypedFormal::Count::any:
    return INPUT_OUTPUT_VARIADIC;
  }
  return INPUT_OUTPUT_REQUIRED;
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

/// The element type of an operand that is given.
ElementType typeOfOperand(const OrtKernelInfo* info, size_t index) {
  OrtTypeInfo* type = nullptr;
  Ort::ThrowOnError(Ort::GetApi().KernelInfo_GetInputTypeInfo(info, index, &type));
  const Ort::TypeInfo owner(type);
  return owner.GetONNXType() == ONNX_TYPE_TENSOR
             ? owner.GetTensorTypeAndShapeInfo().GetElementType()
             : anyType;
}

std::unique_ptr<OperatorKernel> OperatorEntry::kernel(const OrtKernelInfo* info) const {
  NodeDescription node;
  node.name = nameOf(info);
  node.domain = kvoptDomain;
  node.op = known.name;
  node.attributes = attributesOf(info);
  size_t inputs = 0, outputs = 0;
  Ort::ThrowOnError(Ort::GetApi().KernelInfo_GetInputCount(info, &inputs));
  Ort::ThrowOnError(Ort::GetApi().KernelInfo_GetOutputCount(info, &outputs));
  // Some engines crash if they are asked for the type of an omitted operand.
  for (size_t i = 0; i < inputs; ++i) {
    const bool isListed =
        i < types.inputs.size() && types.inputs[i].count != TypedFormal::Count::any;
    node.inputs.push_back({true, isListed ? types.inputs[i].type : typeOfOperand(info, i), false});
  }
  node.outputs.assign(outputs, true);
  auto result = std::make_unique<OperatorKernel>();
  result->site.node = node.fullName() + " '" + node.name + "'";
  result->site.places = {placesUpTo(inputs), placesUpTo(outputs)};
  Offer offer = known.offer(node);
  if (!offer.operation)
    throw Ort::Exception("kvopt: " + result->site.node + " is not supported: " + offer.reason,
                         ORT_NOT_IMPLEMENTED);
  result->operation = std::move(offer.operation);
  return result;
}

OperatorEntry::OperatorEntry(const KvoptOperator& operatorOfEntry, const OperatorTypes& combination)
    : OrtCustomOp{}, known(operatorOfEntry), types(combination) {
  version = apiVersion();
  GetName = [](const OrtCustomOp* op) { return of(op).known.name; };
  GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  GetInputTypeCount = [](const OrtCustomOp* op) { return of(op).types.inputs.size(); };
  GetInputType = [](const OrtCustomOp* op, size_t index) {
    return of(op).types.inputs[index].type;
  };
  GetOutputTypeCount = [](const OrtCustomOp* op) { return of(op).types.outputs.size(); };
  GetOutputType = [](const OrtCustomOp* op, size_t index) {
    return of(op).types.outputs[index].type;
  };
  GetInputCharacteristic = [](const OrtCustomOp* op, size_t index) {
    return characteristicOf(of(op).types.inputs[index]);
  };
  GetOutputCharacteristic = [](const OrtCustomOp* op, size_t index) {
    return characteristicOf(of(op).types.outputs[index]);
  };
  // Operands of any number are blocks of rows and of scales.
  GetVariadicInputMinArity = [](const OrtCustomOp*) { return 0; };
  GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 0; };
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

/// Whether the engine infers result types of every node that kvopt writes with the operator.
/// Engines before 1.18 fail for operands of any number, and for an omitted operand before a given
/// one: nodes have a mask, but may omit the sinks before past_length. Such operators keep their
/// function bodies there.
bool areTypesInferred(const KvoptOperator& known) {
  constexpr uint32_t firstWithOmitted = 18;
  if (engineVersion() >= firstWithOmitted)
    return true;
  constexpr ptrdiff_t maskAndSinks = 2;
  const std::vector<TypedFormal>& inputs = known.types.front().inputs;
  const auto countOf = [&](TypedFormal::Count count) {
    return std::count_if(inputs.begin(), inputs.end(),
                         [&](const TypedFormal& formal) { return formal.count == count; });
  };
  return countOf(TypedFormal::Count::any) == 0 &&
         countOf(TypedFormal::Count::optional) <= maskAndSinks;
}

/// All entries and their domain, which sessions refer to until the process ends.
struct CustomOperators {
  std::deque<OperatorEntry> entries;
  Ort::CustomOpDomain domain{kvoptDomain};

  CustomOperators() {
    for (const KvoptOperator& known : kvoptOperators()) {
      if (!areTypesInferred(known))
        continue;
      for (const OperatorTypes& types : known.types)
        domain.Add(&entries.emplace_back(known, types));
    }
  }
};

} // namespace

void addCustomOperators(OrtSessionOptions* options) {
  static const auto* const all = new CustomOperators;
  Ort::ThrowOnError(Ort::GetApi().AddCustomOpDomain(options, all->domain));
}

} // namespace kvopt::onnxruntime
