// Runs models on given inputs, for the operator oracle. Requests and answers are frames of
// tests/oracle/runner_frames.h. "raised" is the model after the rules that raise fused attention,
// where one of them applied.
#include "driver/toolkit.h"
#include "ir/onnx/import.h"
#include "ir/shapes/shape_inference.h"
#include "passes/pass_manager.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "tests/oracle/runner_frames.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace runtime;

namespace {

constexpr const char* raise =
    "infer-shapes,apply-rules{rules=raise-group-query-attention+raise-multi-head-attention+"
    "raise-decoder-masked-attention+"
    "raise-fused-qkv-attention+raise-onnx-attention}";

llvm::Error raiseAttention(Model& model, const Toolkit& toolkit) {
  PassManager manager(toolkit.passes, {});
  if (llvm::Error error = manager.addPipeline(raise))
    return error;
  PassContext context(toolkit.rules, toolkit.targets);
  return manager.run(model, context);
}

/// The contents of outputs go to the end of `bytes`.
llvm::Expected<Json> outputsOf(const Model& model, Request& request, const Toolkit& toolkit,
                               std::string& bytes) {
  ExecutorOptions options;
  options.threads = 1;
  auto executor = Executor::create(model, toolkit.runner->kernels(), options);
  if (!executor)
    return executor.takeError();
  std::vector<NamedView> views;
  std::vector<std::string> names;
  const Json& inputs = request.header["inputs"];
  for (const Json& input : inputs)
    names.push_back(input["name"]);
  for (size_t i = 0; i < inputs.size(); ++i)
    views.push_back(
        {names[i], TensorView::contiguous(static_cast<ElementType>(inputs[i]["type"].get<int>()),
                                          inputs[i]["dims"].get<std::vector<int64_t>>(),
                                          request.inputs[i].data())});
  auto results = (*executor)->run(views);
  if (!results)
    return results.takeError();
  Json outputs = Json::array();
  for (size_t i = 0; i < results->size(); ++i) {
    const TensorView& view = (*results)[i].view;
    if (!view.isContiguous())
      return unsupported("output {} has strides", i);
    outputs.push_back({{"name", model.graph().outputs()[i]->name().str()},
                       {"type", static_cast<int>(view.element)},
                       {"dims", std::vector<int64_t>(view.shape.begin(), view.shape.end())},
                       {"bytes", view.byteSize()}});
    bytes.append(reinterpret_cast<const char*>(view.data), static_cast<size_t>(view.byteSize()));
  }
  return outputs;
}

/// Null where `raised` and no rule applied.
llvm::Expected<Json> attempt(Request& request, const Toolkit& toolkit, bool raised,
                             std::string& bytes) {
  auto model = importModelBytes(request.model.all(), "", toolkit.ops);
  if (!model)
    return model.takeError();
  if (raised) {
    if (llvm::Error error = raiseAttention(**model, toolkit))
      return error;
    bool applied = false;
    for (const Node& node : (*model)->graph().nodes())
      applied |= node.op().domain() == kvoptDomain;
    if (!applied)
      return Json();
  } else if (llvm::Error error = inferShapes((*model)->graph())) {
    return error;
  }
  return outputsOf(**model, request, toolkit, bytes);
}

void answer(Request& request, const Toolkit& toolkit) {
  Json header;
  std::string bytes;
  for (bool raised : {false, true}) {
    Json& result = header[raised ? "raised" : "plain"];
    auto outputs = attempt(request, toolkit, raised, bytes);
    if (!outputs)
      result["error"] = takeDiagnostic(outputs.takeError()).str();
    else if (!outputs->is_null())
      result["outputs"] = std::move(*outputs);
  }
  write(header, bytes);
}

} // namespace
} // namespace kvopt

int main() {
  const kvopt::driver::Toolkit toolkit;
  kvopt::Request request;
  while (kvopt::read(request)) {
    kvopt::answer(request, toolkit);
    request = {};
  }
  return 0;
}
