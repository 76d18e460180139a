// Reading recorded steps.
#include "runtime/equivalence/reference_steps.h"

#include "ir/onnx/import.h"
#include "ir/op.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <filesystem>
#include <map>
#include <tuple>

namespace kvopt::runtime {
using namespace ir;

namespace {

namespace fs = std::filesystem;

/// Exceeds the number of tokens of any step; the sum over all steps does not overflow.
constexpr int64_t mostTokens = int64_t{1} << 32;

struct StepName {
  int64_t index = 0;
  int64_t tokens = 0;
};

/// `step3_q16` → (3, 16).
std::optional<StepName> parseStepName(llvm::StringRef name) {
  StepName step;
  if (!name.consume_front("step") || name.consumeInteger(10, step.index) ||
      !name.consume_front("_q") || name.getAsInteger(10, step.tokens) || step.index < 0 ||
      step.tokens < 1 || step.tokens > mostTokens)
    return std::nullopt;
  return step;
}

/// Place of a tensor according to the name of its initializer.
struct TensorPlace {
  StepName step;
  bool isInput;
  std::string name;
};

/// Only the shortest spelling of a number is accepted, so that different names are different
/// places. The tensor's own name may contain slashes.
std::optional<TensorPlace> parseTensorPlace(llvm::StringRef text) {
  auto [stepName, rest] = text.split('/');
  auto [kind, name] = rest.split('/');
  const std::optional<StepName> step = parseStepName(stepName);
  if (!step || stepName != formatted("step{}_q{}", step->index, step->tokens) ||
      (kind != "input" && kind != "output") || name.empty())
    return std::nullopt;
  return TensorPlace{*step, kind == "input", name.str()};
}

/// Fails unless the numbers count from 0 without gaps.
template <class T>
llvm::Error checkNumbers(const std::map<int64_t, T>& byNumber, const std::string& path) {
  int64_t expected = 0;
  for (const auto& entry : byNumber)
    if (entry.first != expected++)
      return invalid("step {} is missing", expected - 1).file(path);
  return llvm::Error::success();
}

llvm::Expected<std::vector<ReferenceStep>> readFile(const std::string& path) {
  const OpRegistry noOperators;
  auto model = importModel(path, noOperators);
  if (!model)
    return model.takeError();
  const Graph& graph = (*model)->graph();
  if (!graph.nodes().empty() || !graph.inputs().empty() || !graph.outputs().empty())
    return invalid("the file holds a model that computes, not recorded steps").file(path);
  std::map<int64_t, ReferenceStep> found;
  for (const std::unique_ptr<Value>& value : graph.initializers()) {
    std::optional<TensorPlace> place = parseTensorPlace(value->name());
    if (!place)
      return invalid("not the name of a recorded tensor")
          .file(path)
          .value(value->name())
          .hint("recorded tensors are named step<k>_q<tokens>/input/<name> and "
                "step<k>_q<tokens>/output/<name>");
    if (!value->initializer())
      return invalid("a recorded tensor is sparse").file(path).value(value->name());
    ReferenceStep& step =
        found.try_emplace(place->step.index, ReferenceStep{place->step.tokens, {}, {}})
            .first->second;
    if (step.tokens != place->step.tokens)
      return invalid("step {} has {} tokens, and {} in another tensor's name", place->step.index,
                     place->step.tokens, step.tokens)
          .file(path)
          .value(value->name());
    auto& tensors = place->isInput ? step.inputs : step.outputs;
    tensors.emplace_back(std::move(place->name), value->initializer());
  }
  if (found.empty())
    return invalid("no recorded steps").file(path);
  if (llvm::Error error = checkNumbers(found, path))
    return error;
  std::vector<ReferenceStep> steps;
  for (auto& entry : found)
    steps.push_back(std::move(entry.second));
  return steps;
}

llvm::Error readTensors(const fs::path& folder, const std::string& kind,
                        std::vector<std::pair<std::string, TensorRef>>& tensors) {
  for (unsigned i = 0;; ++i) {
    fs::path path = folder / (kind + "_" + std::to_string(i) + ".pb");
    std::error_code ignored;
    if (!fs::exists(path, ignored))
      return llvm::Error::success();
    auto tensor = importTensorFile(path.string());
    if (!tensor)
      return tensor.takeError();
    tensors.push_back(std::move(*tensor));
  }
}

llvm::Expected<std::vector<ReferenceStep>> readFolder(const std::string& folder) {
  std::map<int64_t, std::pair<fs::path, int64_t>> found;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end;
       entry.increment(code))
    if (auto parsed = parseStepName(entry->path().filename().string()))
      if (!found.try_emplace(parsed->index, entry->path(), parsed->tokens).second)
        return invalid("step {} is recorded twice", parsed->index).file(folder);
  if (code)
    return ioError("cannot read the reference folder: {}", code.message()).file(folder);
  if (found.empty())
    return invalid("no step<k>_q<n> folders").file(folder);
  if (llvm::Error error = checkNumbers(found, folder))
    return error;
  std::vector<ReferenceStep> steps;
  for (const auto& [index, place] : found) {
    ReferenceStep step;
    step.tokens = place.second;
    if (llvm::Error error = readTensors(place.first, "input", step.inputs))
      return error;
    if (llvm::Error error = readTensors(place.first, "output", step.outputs))
      return error;
    steps.push_back(std::move(step));
  }
  return steps;
}

} // namespace

llvm::Expected<std::vector<ReferenceStep>> readReference(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? readFile(path) : readFolder(path);
}

std::vector<ReferenceCase> referenceCases(const std::string& modelFolder) {
  std::vector<ReferenceCase> cases;
  std::error_code code;
  for (fs::directory_iterator entry(fs::path(modelFolder) / "ref", code), end;
       !code && entry != end; entry.increment(code)) {
    const fs::path& path = entry->path();
    std::error_code ignored;
    if (entry->is_directory(ignored))
      cases.push_back({path.filename().string(), path.string()});
    else if (path.extension() == ".onnx")
      cases.push_back({path.stem().string(), path.string()});
  }
  llvm::sort(cases, [](const ReferenceCase& a, const ReferenceCase& b) {
    return std::tie(a.name, a.path) < std::tie(b.name, b.path);
  });
  return cases;
}

const TensorData* findTensor(llvm::ArrayRef<std::pair<std::string, TensorRef>> tensors,
                             llvm::StringRef name) {
  for (const auto& [tensorName, data] : tensors)
    if (tensorName == name)
      return data.get();
  return nullptr;
}

std::optional<int64_t> referenceBatch(llvm::ArrayRef<ReferenceStep> steps) {
  for (const char* name : {"input_ids", "decoder_input_ids", "inputs_embeds"})
    if (const TensorData* tokens = findTensor(steps.front().inputs, name))
      if (!tokens->shape().empty())
        return tokens->shape()[0];
  return std::nullopt;
}

int64_t referenceLength(llvm::ArrayRef<ReferenceStep> steps) {
  int64_t total = 0;
  for (const ReferenceStep& step : steps)
    total += step.tokens;
  return total;
}

std::optional<int64_t> referenceExtent(llvm::ArrayRef<ReferenceStep> steps, llvm::StringRef input,
                                       int64_t axis) {
  const TensorData* tensor = steps.empty() ? nullptr : findTensor(steps.front().inputs, input);
  if (!tensor || axis < 0 || static_cast<size_t>(axis) >= tensor->shape().size())
    return std::nullopt;
  return tensor->shape()[static_cast<size_t>(axis)];
}

} // namespace kvopt::runtime
