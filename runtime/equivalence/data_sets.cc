// Reading of data sets, assignment of their tensors to inputs and outputs, and runs.
#include "runtime/equivalence/data_sets.h"

#include "ir/onnx/import.h"
#include "runtime/exec/input_binding.h"
#include "support/diagnostic.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"

#include <filesystem>
#include <limits>
#include <map>

namespace kvopt::runtime {
using namespace ir;

namespace {

namespace fs = std::filesystem;

/// The k in a name `<prefix><k><suffix>`.
std::optional<int64_t> numberIn(llvm::StringRef name, llvm::StringRef prefix,
                                llvm::StringRef suffix) {
  int64_t number = 0;
  if (!name.consume_front(prefix) || !name.consume_back(suffix) || name.empty() ||
      !llvm::isDigit(name.front()) || name.getAsInteger(10, number))
    return std::nullopt;
  return number;
}

/// Paths in a folder with names `<prefix><k><suffix>`, by k.
llvm::Expected<std::map<int64_t, fs::path>>
numberedPaths(const fs::path& folder, llvm::StringRef prefix, llvm::StringRef suffix) {
  std::map<int64_t, fs::path> found;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end;
       entry.increment(code))
    if (auto number = numberIn(entry->path().filename().string(), prefix, suffix))
      found[*number] = entry->path();
  if (code)
    return ioError("cannot read the folder: {}", code.message()).file(folder.string());
  return found;
}

constexpr const char* setPrefix = "test_data_set_";

/// Exceeds the number of inputs or outputs of any model.
constexpr int64_t mostTensors = 1 << 16;

llvm::Error readTensors(const fs::path& folder, llvm::StringRef prefix,
                        std::vector<std::optional<RecordedTensor>>& tensors) {
  auto paths = numberedPaths(folder, prefix, ".pb");
  if (!paths)
    return paths.takeError();
  for (const auto& [index, path] : *paths) {
    if (index >= mostTensors)
      return invalid("the number {} is too large", index).file(path.string());
    auto tensor = importTensorFile(path.string());
    if (!tensor) {
      Diagnostic diagnostic = takeDiagnostic(tensor.takeError());
      diagnostic.hint = "sequences, maps and optional values are not supported";
      return makeError(std::move(diagnostic));
    }
    tensors.resize(static_cast<size_t>(index) + 1);
    tensors.back() = RecordedTensor{std::move(tensor->first), std::move(tensor->second)};
  }
  return llvm::Error::success();
}

llvm::Expected<DataSet> readDataSet(const fs::path& folder) {
  DataSet set;
  set.folder = folder.string();
  set.name = folder.filename().string();
  if (llvm::Error error = readTensors(folder, "input_", set.inputs))
    return error;
  if (llvm::Error error = readTensors(folder, "output_", set.outputs))
    return error;
  return set;
}

/// The path without trailing separators, after which it would have no file name.
fs::path folderPath(llvm::StringRef folder) {
  while (folder.size() > 1 && endsWith(folder, "/"))
    folder = folder.drop_back();
  return folder.str();
}

bool isDataSet(const fs::path& folder) {
  for (const char* kind : {"output_", "input_"})
    if (auto files = numberedPaths(folder, kind, ".pb"); !files)
      llvm::consumeError(files.takeError());
    else if (!files->empty())
      return true;
  return false;
}

/// Index in `names` of each recorded tensor.
llvm::Expected<std::vector<size_t>> assign(llvm::ArrayRef<std::optional<RecordedTensor>> tensors,
                                           llvm::ArrayRef<std::string> names,
                                           llvm::ArrayRef<size_t> inOrder, const char* kind) {
  auto indexOf = [&](const std::string& name) {
    return static_cast<size_t>(llvm::find(names, name) - names.begin());
  };
  std::vector<size_t> byName;
  bool allNamed = true;
  for (const std::optional<RecordedTensor>& tensor : tensors) {
    const size_t index = tensor ? indexOf(tensor->name) : names.size();
    allNamed &= !tensor || (index < names.size() && !llvm::is_contained(byName, index));
    byName.push_back(index);
  }
  if (allNamed)
    return byName;
  std::vector<size_t> byOrder;
  for (size_t i = 0; i < tensors.size(); ++i) {
    byOrder.push_back(i < inOrder.size() ? inOrder[i] : names.size());
    if (!tensors[i])
      continue;
    if (i >= inOrder.size())
      return invalid("{}_{}.pb is recorded, and the graph has {} {}s", kind, i, inOrder.size(),
                     kind);
    const size_t named = indexOf(tensors[i]->name);
    if (named < names.size() && named != inOrder[i])
      return invalid("{}_{}.pb has the name of {} '{}' and the place of '{}'", kind, i, kind,
                     names[named], names[inOrder[i]])
          .hint("name all of the tensors, or put them in the graph's order");
  }
  return byOrder;
}

/// One model and the expected results of its data sets.
class DataSetReplay {
public:
  DataSetReplay(const Model& replayed, Executor& runner, const DataSetTolerance& allowed)
      : graph(replayed.graph()), executor(runner), tolerance(allowed) {}

  llvm::Expected<StepComparison> run(const DataSet& set) {
    std::vector<Tensor> kept;
    std::vector<NamedView> views;
    if (llvm::Error error = bindInputs(set, kept, views))
      return error;
    std::vector<std::string> names;
    std::vector<size_t> inOrder;
    for (const Value* output : graph.outputs()) {
      inOrder.push_back(names.size());
      names.push_back(output->name().str());
    }
    auto indices = assign(set.outputs, names, inOrder, "output");
    if (!indices)
      return indices.takeError();
    std::vector<const TensorRef*> expected(names.size(), nullptr);
    for (size_t i = 0; i < set.outputs.size(); ++i)
      if (set.outputs[i])
        expected[(*indices)[i]] = &set.outputs[i]->data;
    for (size_t i = 0; i < names.size(); ++i)
      if (!expected[i])
        return invalid("output '{}' is not recorded", names[i]);
    auto outputs = executor.run(views);
    if (!outputs)
      return outputs.takeError();
    StepComparison step;
    step.phase = set.name;
    for (size_t i = 0; i < names.size(); ++i) {
      auto compared = compare(names[i], (*outputs)[i].view, *expected[i]);
      if (!compared)
        return compared.takeError();
      step.outputs.push_back(std::move(*compared));
    }
    return step;
  }

private:
  llvm::Error bindInputs(const DataSet& set, std::vector<Tensor>& kept,
                         std::vector<NamedView>& views) {
    std::vector<std::string> names;
    std::vector<size_t> all;
    std::vector<size_t> needed;
    for (const std::unique_ptr<Value>& input : graph.inputs()) {
      if (input->type().elementType() == ElementType::Undefined)
        return unsupported("input '{}' is not declared as a tensor", input->name())
            .hint("sequences, maps and optional values are not supported");
      all.push_back(names.size());
      if (!input->isInitializer())
        needed.push_back(names.size());
      names.push_back(input->name().str());
    }
    auto indices =
        assign(set.inputs, names, set.inputs.size() > needed.size() ? all : needed, "input");
    if (!indices)
      return indices.takeError();
    std::vector<bool> isGiven(names.size(), false);
    for (size_t i = 0; i < set.inputs.size(); ++i) {
      if (!set.inputs[i])
        continue;
      auto tensor = Tensor::of(executor.allocator(), set.inputs[i]->data);
      if (!tensor)
        return tensor.takeError();
      const size_t index = (*indices)[i];
      isGiven[index] = true;
      views.push_back({graph.inputs()[index]->name(), tensor->view});
      kept.push_back(std::move(*tensor));
    }
    for (size_t index : needed)
      if (!isGiven[index])
        return invalid("input '{}' is not recorded", names[index]);
    return llvm::Error::success();
  }

  llvm::Expected<TensorComparison> compare(const std::string& name, const TensorView& ours,
                                           const TensorRef& recorded) {
    auto expected = Tensor::of(executor.allocator(), recorded);
    if (!expected)
      return withValue(expected.takeError(), name);
    TensorComparison result;
    result.name = name;
    if (ours.element != expected->view.element || ours.shape != expected->view.shape) {
      auto text = [](const TensorView& view) {
        return onnxName(view.element).str() + extentsText(view.shape);
      };
      result.mismatch = formatted("is {}, and {} is recorded", text(ours), text(expected->view));
      result.comparison.compared = result.comparison.violations = 1;
      result.comparison.maxAbs = std::numeric_limits<double>::infinity();
      result.comparison.maxUlp = UINT64_MAX;
      result.comparison.bitExact = false;
      return result;
    }
    const Tolerance allowed = tolerance.of(ours.element);
    auto comparison = compareTensors(ours, expected->view, allowed);
    if (!comparison)
      return withValue(comparison.takeError(), name);
    result.comparison = std::move(*comparison);
    result.allowed = allowed.absolute;
    return result;
  }

  const Graph& graph;
  Executor& executor;
  const DataSetTolerance& tolerance;
};

} // namespace

bool holdsDataSets(const std::string& folder) {
  auto sets = numberedPaths(folder, setPrefix, "");
  if (!sets) {
    llvm::consumeError(sets.takeError());
    return false;
  }
  return !sets->empty() || isDataSet(folderPath(folder));
}

llvm::Expected<std::vector<DataSet>> readDataSets(const std::string& folder) {
  auto paths = numberedPaths(folder, setPrefix, "");
  if (!paths)
    return paths.takeError();
  if (paths->empty() && isDataSet(folderPath(folder)))
    (*paths)[0] = folderPath(folder);
  if (paths->empty())
    return invalid("no test_data_set_<k> folders").file(folder);
  std::vector<DataSet> sets;
  for (const auto& [index, path] : *paths) {
    auto set = readDataSet(path);
    if (!set)
      return set.takeError();
    sets.push_back(std::move(*set));
  }
  return sets;
}

Tolerance DataSetTolerance::of(ElementType element) const {
  if (!isFloatingPoint(element))
    return {};
  const bool isNarrow = byteWidth(element).value_or(1) <= 2;
  const Tolerance usual = isNarrow ? Tolerance{2e-2, 2e-2} : Tolerance{1e-4, 1e-3};
  return {absolute.value_or(usual.absolute), relative.value_or(absolute ? 0.0 : usual.relative)};
}

llvm::Expected<ComparisonReport> replayDataSets(const Model& model, Executor& executor,
                                                llvm::ArrayRef<DataSet> sets,
                                                const DataSetTolerance& tolerance) {
  ComparisonReport report;
  DataSetReplay replay(model, executor, tolerance);
  for (const DataSet& set : sets) {
    auto step = replay.run(set);
    if (!step)
      return withFile(step.takeError(), set.folder);
    report.steps.push_back(std::move(*step));
  }
  return report;
}

} // namespace kvopt::runtime
