// ai.kvopt's operators one by one in ONNX Runtime: with the provider, with the custom operators (in
// models without function bodies, which only they can run), by the function bodies alone, and in
// kvopt's runtime. Also sessions with MultiHeadAttention, which the provider claims, and one step
// of decoders whose caches are in blocks:
//   operator_calls [MODEL…]
// Exits with 1 where something differs.
#include "ir/onnx/export.h"
#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "support/format.h"
#include "tests/engines/onnxruntime/operator_case.h"
#include "tests/engines/onnxruntime/test_engine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

namespace kvopt {
namespace {

using Results = std::vector<CaseTensor>;

void require(bool holds, const std::string& what) {
  if (!holds)
    throw std::runtime_error(what);
}

template <class T> T valueOrThrow(llvm::Expected<T> value) {
  if (!value)
    throw std::runtime_error(llvm::toString(value.takeError()));
  return std::move(*value);
}

Ort::Value valueOf(const CaseTensor& tensor) {
  static const auto memory = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
  return Ort::Value::CreateTensor(memory, const_cast<std::byte*>(tensor.bytes.data()),
                                  tensor.bytes.size(), tensor.shape.data(), tensor.shape.size(),
                                  static_cast<ONNXTensorElementDataType>(tensor.element));
}

CaseTensor tensorOf(const Ort::Value& value) {
  const auto info = value.GetTensorTypeAndShapeInfo();
  CaseTensor tensor{static_cast<ir::ElementType>(info.GetElementType()), info.GetShape(), {}};
  tensor.bytes.resize(static_cast<size_t>(tensor.count()) * *ir::byteWidth(tensor.element));
  if (!tensor.bytes.empty())
    std::memcpy(tensor.bytes.data(), value.GetTensorRawData(), tensor.bytes.size());
  return tensor;
}

/// Runs a session with inputs by name; results are in the order of the session's outputs.
Results resultsOf(Ort::Session& session, const std::map<std::string, CaseTensor>& inputs) {
  std::vector<const char*> names, outputs;
  std::vector<Ort::Value> values;
  for (const auto& [name, tensor] : inputs) {
    names.push_back(name.c_str());
    values.push_back(valueOf(tensor));
  }
  const std::vector<std::string> found = session.GetOutputNames();
  for (const std::string& name : found)
    outputs.push_back(name.c_str());
  const std::vector<Ort::Value> returned =
      session.Run(Ort::RunOptions{nullptr}, names.data(), values.data(), values.size(),
                  outputs.data(), outputs.size());
  Results results;
  for (const Ort::Value& value : returned)
    results.push_back(tensorOf(value));
  return results;
}

std::map<std::string, CaseTensor> inputsOf(const OperatorCase& call) {
  std::map<std::string, CaseTensor> inputs;
  for (size_t i = 0; i < call.operands.size(); ++i)
    if (call.operands[i])
      inputs.emplace(formatted("x{}", i), *call.operands[i]);
  return inputs;
}

Ort::Session open(TestEngine& engine, const std::string& bytes, const SessionSettings& settings) {
  return engine.open(std::as_bytes(std::span(bytes)), settings);
}

Results engineResults(TestEngine& engine, const OperatorCase& call,
                      const SessionSettings& settings) {
  engine.takeLog();
  // Only the library can run a model without bodies. The provider claims calls of functions.
  const bool withBody = settings.entry != LibraryEntry::customOperators;
  Ort::Session session = open(engine, call.modelBytes(withBody), settings);
  const std::string log = engine.takeLog();
  if (settings.entry == LibraryEntry::provider)
    require(log.find("claimed 1 " + call.op + ";") != std::string::npos, "not claimed: " + log);
  return resultsOf(session, inputsOf(call));
}

Results runtimeResults(const OperatorCase& call) {
  static const std::unique_ptr<const runtime::KernelRegistry> kernels = [] {
    auto filled = std::make_unique<runtime::KernelRegistry>();
    registerAll(*filled);
    return filled;
  }();
  const std::unique_ptr<ir::Model> model = call.model(false);
  auto executor = valueOrThrow(runtime::Executor::create(*model, *kernels));
  std::vector<runtime::TensorView> views;
  for (const std::optional<CaseTensor>& operand : call.operands)
    if (operand)
      views.push_back(runtime::TensorView::contiguous(
          operand->element, operand->shape, const_cast<std::byte*>(operand->bytes.data())));
  Results results;
  for (const runtime::Tensor& tensor : valueOrThrow(executor->run(views))) {
    const runtime::TensorView& view = tensor.view;
    CaseTensor result{view.element, {view.shape.begin(), view.shape.end()}, {}};
    result.bytes.assign(view.data, view.data + view.byteSize());
    results.push_back(std::move(result));
  }
  return results;
}

/// Equal in every bit, or within `tolerance`.
void requireEqual(const Results& found, const Results& expected, double tolerance,
                  const std::string& what) {
  require(found.size() == expected.size(), what + ": another number of results");
  for (size_t i = 0; i < found.size(); ++i) {
    require(found[i].element == expected[i].element && found[i].shape == expected[i].shape,
            what + formatted(": result {} has another type", i));
    if (tolerance == 0) {
      require(found[i].bytes == expected[i].bytes, what + formatted(": result {} differs", i));
      continue;
    }
    for (int64_t at = 0; at < found[i].count(); ++at) {
      const double mine = found[i].get(at), theirs = expected[i].get(at);
      require(mine == theirs ||
                  std::fabs(mine - theirs) <= tolerance * std::max(1.0, std::fabs(theirs)),
              what + formatted(": result {} at {} is {}, not {}", i, at, mine, theirs));
    }
  }
}

void testCall(TestEngine& engine, const OperatorCase& call) {
  const Results expected = runtimeResults(call);
  for (const LibraryEntry entry : {LibraryEntry::provider, LibraryEntry::customOperators})
    for (const int threads : {1, 2})
      requireEqual(engineResults(engine, call, {entry, threads, ORT_DISABLE_ALL, ""}), expected, 0,
                   entry == LibraryEntry::provider ? "provider" : "custom operators");
  if (call.doesEngineRunBody)
    requireEqual(engineResults(engine, call, {LibraryEntry::none, 1, ORT_DISABLE_ALL, ""}),
                 expected, call.tolerance, "function body");
}

void testError(TestEngine& engine, const OperatorCase& call, const std::string& message) {
  for (const LibraryEntry entry : {LibraryEntry::provider, LibraryEntry::customOperators})
    try {
      engineResults(engine, call, {entry, 1, ORT_DISABLE_ALL, ""});
      throw std::runtime_error("no error: " + message);
    } catch (const Ort::Exception& error) {
      require(std::string(error.what()).find(message) != std::string::npos, error.what());
      require(std::string(error.what()).find(call.op) != std::string::npos, error.what());
    }
}

/// A present in the memory of its past: the rows of the past stay where they are.
void testAppendInPlace(TestEngine& engine, LibraryEntry entry) {
  constexpr int64_t past = 5, valid = 2, fresh = 3, width = 8;
  constexpr auto f32 = ir::ElementType::Float;
  OperatorCase call = appendInPlaceCase(past, valid, fresh, width);
  Ort::Session session = open(engine, call.modelBytes(entry == LibraryEntry::provider),
                              {entry, 1, ORT_DISABLE_ALL, ""});
  engine.takeLog();
  const Results expected = runtimeResults(call);
  CaseTensor buffer = filledWith(f32, {1, 1, past + fresh, width}, 7);
  std::copy(call.operands[0]->bytes.begin(), call.operands[0]->bytes.end(), buffer.bytes.begin());
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
  const auto boundRows = [&](int64_t rows) {
    const int64_t shape[] = {1, 1, rows, width};
    return Ort::Value::CreateTensor(memory, buffer.bytes.data(),
                                    static_cast<size_t>(rows * width) * sizeof(float), shape, 4,
                                    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
  };
  const Ort::Value before = boundRows(past), after = boundRows(past + fresh);
  const Ort::Value added = valueOf(*call.operands[1]), length = valueOf(*call.operands[2]);
  Ort::IoBinding bound(session);
  bound.BindInput("x0", before);
  bound.BindInput("x1", added);
  bound.BindInput("x2", length);
  bound.BindOutput("y0", after);
  session.Run(Ort::RunOptions{nullptr}, bound);
  requireEqual({buffer}, expected, 0, "one buffer");
  require(engine.takeLog().find("copies") == std::string::npos, "one buffer is copied");
  resultsOf(session, inputsOf(call));
  resultsOf(session, inputsOf(call));
  const std::string log = engine.takeLog();
  const size_t notice = log.find("copies");
  require(notice != std::string::npos && log.find("copies", notice + 1) == std::string::npos,
          "not one notice: " + log);
}

constexpr const char* multiHeadModel = R"(
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
step (float[B,S,32] query, float[B,S,32] key, float[B,S,32] value,
      float[B,4,P,8] past_key, float[B,4,P,8] past_value)
    => (float[B,S,32] output, float[B,4,T,8] present_key, float[B,4,T,8] present_value) {
  output, present_key, present_value = com.microsoft.MultiHeadAttention
      <num_heads = 4, unidirectional = 1> (query, key, value, , , , past_key, past_value)
}
)";

/// Prefill and decoding steps of MultiHeadAttention whose presents are the next step's pasts.
void testMultiHead(TestEngine& engine, int64_t batch, int threads) {
  const auto model = valueOrThrow(ir::readText(multiHeadModel, caseOperators()));
  const std::string bytes = valueOrThrow(ir::exportModelBytes(*model));
  engine.takeLog();
  Ort::Session mine = open(engine, bytes, {LibraryEntry::provider, threads, ORT_ENABLE_ALL, ""});
  const std::string log = engine.takeLog();
  require(log.find("claimed 1 com.microsoft::MultiHeadAttention;") != std::string::npos, log);
  Ort::Session theirs = open(engine, bytes, {LibraryEntry::none, threads, ORT_ENABLE_ALL, ""});
  constexpr auto f32 = ir::ElementType::Float;
  Results caches = {{}, randomOf(f32, {batch, 4, 0, 8}, 1), randomOf(f32, {batch, 4, 0, 8}, 1)};
  Results own = caches;
  unsigned seed = 1;
  for (const int64_t rows : {5, 1, 1, 3, 1}) {
    std::map<std::string, CaseTensor> inputs;
    for (const char* name : {"query", "key", "value"})
      inputs.emplace(name, randomOf(f32, {batch, rows, 32}, ++seed));
    const auto step = [&](Ort::Session& session, Results& state) {
      inputs["past_key"] = state[1];
      inputs["past_value"] = state[2];
      state = resultsOf(session, inputs);
    };
    step(theirs, caches);
    step(mine, own);
    requireEqual({own[0]}, {caches[0]}, 1e-5, "output");
    requireEqual({own[1], own[2]}, {caches[1], caches[2]}, 0, "presents");
  }
}

/// Inputs of a decoder with caches in blocks of 16 rows: 37 tokens are cached, and 3 are new.
std::map<std::string, CaseTensor> stepInputs(const Ort::Session& session) {
  constexpr int64_t cached = 37, fresh = 3, blockRows = 16;
  std::map<std::string, CaseTensor> inputs;
  const std::vector<std::string> names = session.GetInputNames();
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    const auto type = session.GetInputTypeInfo(i);
    const auto info = type.GetTensorTypeAndShapeInfo();
    std::vector<int64_t> shape = info.GetShape();
    shape[0] = 1;
    if (const size_t at = name.find("block_"); at != std::string::npos) {
      const int64_t before = std::atoi(name.c_str() + at + 6) * blockRows;
      if (shape[2] < 0)
        shape[2] = std::clamp<int64_t>(cached - before, 0, blockRows);
      inputs.emplace(name, randomOf(static_cast<ir::ElementType>(info.GetElementType()), shape,
                                    static_cast<unsigned>(i), 0.1));
      continue;
    }
    std::vector<int64_t> numbers(name == "attention_mask" ? cached + fresh : fresh, 1);
    for (int64_t token = 0; token < fresh && name == "position_ids"; ++token)
      numbers[static_cast<size_t>(token)] = cached + token;
    if (name == "past_length")
      numbers = {cached};
    CaseTensor tensor = lengthsOf(numbers);
    if (name != "past_length")
      tensor.shape.insert(tensor.shape.begin(), 1);
    inputs.emplace(name, std::move(tensor));
  }
  return inputs;
}

/// Both entries give the same bits, which are not those of the bodies in general.
void testDecoder(TestEngine& engine, const std::string& path) {
  engine.takeLog();
  Ort::Session provider = engine.open(path, {LibraryEntry::provider, 2, ORT_ENABLE_ALL, ""});
  const std::string log = engine.takeLog();
  require(log.find("refused nothing") != std::string::npos &&
              log.find("claimed nothing") == std::string::npos,
          log);
  Ort::Session custom = engine.open(path, {LibraryEntry::customOperators, 1, ORT_ENABLE_ALL, ""});
  Ort::Session bodies = engine.open(path, {LibraryEntry::none, 1, ORT_ENABLE_ALL, ""});
  const std::map<std::string, CaseTensor> inputs = stepInputs(provider);
  const Results results = resultsOf(provider, inputs);
  requireEqual(resultsOf(custom, inputs), results, 0, "custom operators");
  requireEqual(resultsOf(bodies, inputs), results, 1e-4, "function bodies");
  std::printf("%s: %s", path.c_str(), log.c_str());
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) {
  using namespace kvopt;
  TestEngine engine;
  int failures = 0;
  const auto attempt = [&](const std::string& what, const auto& body) {
    try {
      body();
    } catch (const std::exception& error) {
      std::printf("%s: FAILED: %s\n", what.c_str(), error.what());
      ++failures;
    }
  };
  const std::vector<OperatorCase> cases = operatorCases();
  for (const OperatorCase& call : cases)
    attempt(call.what, [&] { testCall(engine, call); });
  for (const auto& wrong : wrongCases())
    attempt(wrong.second, [&] { testError(engine, wrong.first, wrong.second); });
  for (const LibraryEntry entry : {LibraryEntry::provider, LibraryEntry::customOperators})
    attempt("AppendRows in place", [&] { testAppendInPlace(engine, entry); });
  for (const int64_t batch : {1, 2})
    for (const int threads : {1, 2})
      attempt(formatted("MultiHeadAttention, batch {}", batch),
              [&] { testMultiHead(engine, batch, threads); });
  for (int i = 1; i < argc; ++i)
    attempt(argv[i], [&] { testDecoder(engine, argv[i]); });
  std::printf("%zu calls, %d failures\n", cases.size(), failures);
  return failures == 0 ? 0 : 1;
}
