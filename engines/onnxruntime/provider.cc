// Claiming nodes of a graph, and kernels for the claimed ones.
//
// Engines before 1.25 give fused nodes of two graphs the same name and then fail to load the model.
// There, nodes with values from outside their graph are refused, and so is every node after the
// first graph with claims was compiled.
#include "engines/onnxruntime/provider.h"

#include "engines/onnxruntime/operation.h"

#include <map>
#include <memory>

namespace kvopt::onnxruntime {

namespace {

/// The kernel of one claimed node. Lives until the engine releases it.
class NodeKernel : public OrtNodeComputeInfo {
public:
  NodeKernel(CallSite callSite, std::unique_ptr<Operation> nodeOperation)
      : OrtNodeComputeInfo{}, site(std::move(callSite)), operation(std::move(nodeOperation)) {
    ort_version_supported = apiVersion();
    CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*, void** state) noexcept {
      *state = self;
      return static_cast<OrtStatus*>(nullptr);
    };
    Compute = [](OrtNodeComputeInfo*, void* state, OrtKernelContext* context) noexcept {
      return guarded([&] {
        const auto& kernel =
            *static_cast<const NodeKernel*>(static_cast<OrtNodeComputeInfo*>(state));
        Call call(context, kernel.site);
        kernel.operation->compute(call);
      });
    };
    ReleaseState = [](OrtNodeComputeInfo*, void*) noexcept {};
  }

private:
  CallSite site;
  std::unique_ptr<Operation> operation;
};

/// Places of the node's operands and results in the fused node.
OperandPlaces placesOf(const Ort::ConstNode& node, const Ort::ConstNode& fused) {
  const auto places = [](const std::vector<Ort::ConstValueInfo>& of,
                         const std::vector<Ort::ConstValueInfo>& in) {
    std::map<std::string, int> byName;
    for (size_t i = 0; i < in.size(); ++i)
      byName.emplace(in[i].GetName(), static_cast<int>(i));
    std::vector<int> result;
    for (const Ort::ConstValueInfo& value : of) {
      const bool isGiven = static_cast<const OrtValueInfo*>(value) != nullptr;
      const auto found = isGiven ? byName.find(value.GetName()) : byName.end();
      result.push_back(found == byName.end() ? OperandPlaces::absent : found->second);
    }
    return result;
  };
  return {places(node.GetInputs(), fused.GetInputs()),
          places(node.GetOutputs(), fused.GetOutputs())};
}

/// Numbers of claimed nodes and of refused ones with their reasons, for one line of the log.
class Tally {
public:
  void claim(const NodeDescription& node) { ++claimed[node.fullName()]; }
  void refuse(const NodeDescription& node, const std::string& reason) {
    ++refused[node.fullName() + " (" + reason + ")"];
  }
  bool isEmpty() const { return claimed.empty() && refused.empty(); }
  std::string line() const {
    return "kvopt: claimed " + list(claimed) + "; refused " + list(refused);
  }

private:
  static std::string list(const std::map<std::string, int>& counts) {
    std::string text;
    for (const auto& [what, count] : counts)
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
    return text.empty() ? "nothing" : text;
  }

  std::map<std::string, int> claimed;
  std::map<std::string, int> refused;
};

class Provider : public OrtEp {
public:
  Provider(ProviderOptions sessionOptions, const OrtLogger* sessionLogger)
      : OrtEp{}, options(std::move(sessionOptions)), logger(sessionLogger) {
    ort_version_supported = apiVersion();
    GetName = [](const OrtEp*) noexcept { return providerName; };
    GetCapability = [](OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* info) noexcept {
      return guarded([&] { static_cast<Provider*>(self)->claim(graph, info); });
    };
    Compile = [](OrtEp* self, const OrtGraph** graphs, const OrtNode** fused, size_t count,
                 OrtNodeComputeInfo** kernels, OrtNode**) noexcept {
      return guarded([&] { static_cast<Provider*>(self)->compile(graphs, fused, count, kernels); });
    };
    ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** kernels, size_t count) noexcept {
      for (size_t i = 0; i < count; ++i)
        delete static_cast<NodeKernel*>(kernels[i]);
    };
  }

private:
  std::string reasonAgainst(const NodeDescription& node) const {
    if (!options.off.empty())
      return options.off;
    constexpr uint32_t firstWithSubgraphs = 25;
    if (engineVersion() < firstWithSubgraphs) {
      if (hasCompiled)
        return "in another graph, before ONNX Runtime 1.25";
      for (const OperandDescription& input : node.inputs)
        if (input.isFromOuterScope)
          return "in a subgraph, before ONNX Runtime 1.25";
    }
    return operationOf(node).reason;
  }

  void claim(const OrtGraph* graph, OrtEpGraphSupportInfo* info) {
    Tally tally;
    for (const Ort::ConstNode& node : Ort::ConstGraph{graph}.GetNodes()) {
      const NodeDescription description = describe(node);
      if (!isKnown(description))
        continue;
      if (const std::string reason = reasonAgainst(description); !reason.empty()) {
        tally.refuse(description, reason);
        continue;
      }
      tally.claim(description);
      const OrtNode* one = node;
      OrtNodeFusionOptions fusion{};
      fusion.ort_version_supported = apiVersion();
      Ort::ThrowOnError(Ort::GetEpApi().EpGraphSupportInfo_AddNodesToFuse(info, &one, 1, &fusion));
    }
    // A graph with calls of functions is asked about again after they were inlined.
    if (!tally.isEmpty() && tally.line() != lastLine)
      logLine(logger, ORT_LOGGING_LEVEL_INFO, lastLine = tally.line());
  }

  void compile(const OrtGraph** graphs, const OrtNode** fused, size_t count,
               OrtNodeComputeInfo** kernels) {
    hasCompiled = hasCompiled || count > 0;
    std::vector<std::unique_ptr<NodeKernel>> made;
    for (size_t i = 0; i < count; ++i) {
      const Ort::ConstNode node = Ort::ConstGraph{graphs[i]}.GetNodes().at(0);
      const NodeDescription description = describe(node);
      Offer offer = operationOf(description);
      const std::string name = description.fullName() + " '" + description.name + "'";
      if (!offer.operation)
        throw Ort::Exception("kvopt: " + name + " was claimed, but now: " + offer.reason, ORT_FAIL);
      made.push_back(std::make_unique<NodeKernel>(
          CallSite{name, placesOf(node, Ort::ConstNode{fused[i]})}, std::move(offer.operation)));
    }
    for (size_t i = 0; i < count; ++i)
      kernels[i] = made[i].release();
  }

  ProviderOptions options;
  const OrtLogger* logger;
  std::string lastLine;
  bool hasCompiled = false;
};

std::string entryOf(const OrtSessionOptions* options, const std::string& key) {
  return Ort::ConstSessionOptions{options}.GetConfigEntryOrDefault(key.c_str(), "");
}

} // namespace

ProviderOptions ProviderOptions::of(const OrtSessionOptions* options) {
  ProviderOptions result;
  const std::string key = std::string("ep.") + providerName + ".off";
  const std::string off = entryOf(options, key);
  if (off == "1")
    result.off = "switched off by " + key;
  else if (!off.empty() && off != "0")
    throw Ort::Exception("kvopt: option " + key + " is '" + off + "'; it should be 0 or 1",
                         ORT_INVALID_ARGUMENT);
  // Such a session writes a model with the claimed nodes as contexts, which this provider lacks.
  if (entryOf(options, "ep.context_enable") == "1")
    result.off = "ep.context_enable is set";
  return result;
}

OrtEp* createProvider(ProviderOptions options, const OrtLogger* logger) {
  return new Provider(std::move(options), logger);
}

void destroyProvider(OrtEp* provider) { delete static_cast<Provider*>(provider); }

} // namespace kvopt::onnxruntime
