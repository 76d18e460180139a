// Runs models of single operators in ONNX Runtime with the provider, for the operator oracle:
// requests and answers are frames of tests/oracle/runner_frames.h. A node that the provider does
// not claim is an error with its reason. "raised" is the same session with two threads, run twice.
#include "tests/engines/onnxruntime/test_engine.h"
#include "tests/oracle/runner_frames.h"

namespace kvopt {
namespace {

size_t bytesOf(ONNXTensorElementDataType type, size_t count) {
  switch (type) {
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
    return 4 * count;
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
    return 2 * count;
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
    return 8 * count;
  default:
    return count;
  }
}

Json outputsOf(TestEngine& engine, Request& request, int threads, std::string& bytes) {
  engine.takeLog();
  Ort::Session session = engine.open(request.model.all(), {LibraryEntry::provider, threads});
  if (const std::string log = engine.takeLog(); log.find("claimed 1 ") == std::string::npos)
    throw std::runtime_error("not claimed: " + log);
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
  std::vector<std::string> names;
  std::vector<const char*> inputNames, outputNames;
  std::vector<Ort::Value> values;
  const Json& inputs = request.header["inputs"];
  for (const Json& input : inputs)
    names.push_back(input["name"]);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto shape = inputs[i]["dims"].get<std::vector<int64_t>>();
    values.push_back(Ort::Value::CreateTensor(
        memory, request.inputs[i].data(), request.inputs[i].all().size(), shape.data(),
        shape.size(), static_cast<ONNXTensorElementDataType>(inputs[i]["type"].get<int>())));
    inputNames.push_back(names[i].c_str());
  }
  const std::vector<std::string> results = session.GetOutputNames();
  for (const std::string& name : results)
    outputNames.push_back(name.c_str());
  std::vector<Ort::Value> outputs;
  for (int run = 0; run < threads; ++run)
    outputs = session.Run(Ort::RunOptions{nullptr}, inputNames.data(), values.data(), values.size(),
                          outputNames.data(), outputNames.size());
  Json list = Json::array();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto info = outputs[i].GetTensorTypeAndShapeInfo();
    const size_t size = bytesOf(info.GetElementType(), info.GetElementCount());
    list.push_back({{"name", results[i]},
                    {"type", static_cast<int>(info.GetElementType())},
                    {"dims", info.GetShape()},
                    {"bytes", size}});
    if (size != 0)
      bytes.append(static_cast<const char*>(outputs[i].GetTensorRawData()), size);
  }
  return list;
}

void answer(TestEngine& engine, Request& request) {
  Json header;
  std::string bytes;
  for (const char* which : {"plain", "raised"}) {
    const size_t before = bytes.size();
    try {
      header[which]["outputs"] = outputsOf(engine, request, *which == 'p' ? 1 : 2, bytes);
    } catch (const std::exception& error) {
      bytes.resize(before);
      header[which] = {{"error", error.what()}};
    }
  }
  write(header, bytes);
}

} // namespace
} // namespace kvopt

int main() {
  kvopt::TestEngine engine;
  kvopt::Request request;
  while (kvopt::read(request)) {
    kvopt::answer(engine, request);
    request = {};
  }
  return 0;
}
