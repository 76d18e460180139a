// Writing, reading and testing candidates.
#include "driver/reduce/candidates.h"

#include "driver/rewrite/data_files.h"
#include "ir/manifest/written_claim.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/onnx/model_files.h"
#include "ir/shapes/shape_inference.h"
#include "ir/verify/verifier.h"
#include "support/child_process.h"
#include "support/diagnostic.h"
#include "support/file_copy.h"
#include "support/mapped_file.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"

#include <filesystem>

namespace kvopt::driver {
using namespace ir;

namespace {

namespace fs = std::filesystem;

std::string folderOf(const std::string& path) { return fs::path(path).parent_path().string(); }

/// Name of the candidate's manifest for a candidate's name.
std::string manifestNameFor(const std::string& name) { return manifestPathBeside(name); }

/// Path of a file relative to a folder; nullopt for a file outside of it.
std::optional<std::string> pathWithin(const std::string& file, const std::string& folder) {
  const std::string relative =
      fs::path(file).lexically_relative(folder.empty() ? fs::path(".") : fs::path(folder)).string();
  if (relative.empty() || relative == "." || llvm::StringRef(relative).take_front(2) == ".." ||
      relative.front() == '/')
    return std::nullopt;
  return relative;
}

/// Removes nodes, initializers and functions that nothing uses.
void removeUnused(Model& model) {
  model.graph().eraseDeadNodes();
  for (bool removes = true; removes;) {
    llvm::DenseSet<OpName> called;
    const auto visit = [&](Graph& graph) {
      for (const Node& node : graph.nodes())
        called.insert(node.op());
    };
    forEachGraph(model.graph(), visit);
    for (const auto& function : model.functions)
      forEachGraph(function->body, visit);
    const size_t count = model.functions.size();
    llvm::erase_if(model.functions, [&](const std::unique_ptr<Function>& function) {
      return !called.contains(OpName(function->domain, function->name));
    });
    removes = model.functions.size() != count;
    if (removes)
      model.markEdited();
  }
}

/// Adds a copy of a file at `path` to the outputs.
llvm::Error addCopy(const std::string& file, const std::string& path, OutputFiles& outputs) {
  auto copy = copyOf(file, path, outputs.access());
  if (!copy)
    return copy.takeError();
  outputs.add(std::move(*copy));
  return llvm::Error::success();
}

/// Whether two files have the same bytes. False for files that cannot be read.
bool haveSameBytes(const std::string& a, const std::string& b) {
  std::error_code code;
  if (fs::file_size(a, code) != fs::file_size(b, code) || code)
    return false;
  auto first = MappedFile::open(a);
  auto second = MappedFile::open(b);
  const bool areSame = first && second && llvm::equal((*first)->bytes(), (*second)->bytes());
  if (!first)
    llvm::consumeError(first.takeError());
  if (!second)
    llvm::consumeError(second.takeError());
  return areSame;
}

/// Whether a failure concerns the machine and not the model.
bool isIoError(const Diagnostic& diagnostic) { return diagnostic.kind == Diagnostic::Kind::Io; }

} // namespace

llvm::Error Candidates::makeManifestOfEdited() {
  manifestOfEdited = manifest;
  auto file = MappedFile::open(manifest);
  if (!file)
    return file.takeError();
  const std::span<const std::byte> bytes = (*file)->bytes();
  const auto text = withoutComparison({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!text)
    return llvm::Error::success();
  manifestOfEdited = folder.path("edited.kv.json");
  auto written = OutputFile::create(manifestOfEdited, *toolkit.files);
  if (!written)
    return written.takeError();
  if (llvm::Error error = written->write(llvm::StringRef(*text + "\n")))
    return error;
  return written->commit();
}

llvm::Error Candidates::takeFiles(const std::string& modelFile) {
  const std::string source = folderOf(request.model);
  const std::string itsManifest = manifestPathBeside(request.model);
  std::vector<DataFile> files;
  const auto take = [&](const std::string& file, const std::string& name) {
    files.push_back({file, name, folder.path(name)});
  };
  for (const InputFile& file : filesOfModelAt(request.model)) {
    std::error_code ignored;
    if (file.path == request.model || file.path == itsManifest || !fs::exists(file.path, ignored))
      continue;
    if (auto name = pathWithin(file.path, source))
      take(file.path, *name);
  }
  take(request.model, modelFile);
  if (fs::exists(itsManifest)) {
    take(itsManifest, "original.kv.json");
    manifest = folder.path("original.kv.json");
  }
  if (!request.linksFiles)
    if (llvm::Error error = checkRoom(files))
      return error;
  OutputFiles copies(*toolkit.files);
  for (const DataFile& file : files)
    if (llvm::Error error =
            request.linksFiles ? folder.link(file.source, file.location) : addTo(copies, file))
      return error;
  if (llvm::Error error = copies.commit())
    return error;
  if (!hasManifest())
    return llvm::Error::success();
  if (llvm::Error error = makeManifestOfEdited())
    return error;
  return folder.link(manifest, manifestNameFor(modelFile));
}

llvm::Error Candidates::addTo(OutputFiles& copies, const DataFile& file) {
  if (llvm::Error error = folder.makeFoldersOf(file.location))
    return error;
  return addCopy(file.source, file.path, copies);
}

llvm::Expected<Candidates> Candidates::create(const ReduceRequest& request,
                                              const Toolkit& toolkit) {
  if (request.command.find("{}") == std::string::npos)
    return usageError("the command does not contain '{{}}', the place of the model's path")
        .hint("--while 'COMMAND {}'");
  if (toolkit.files)
    if (llvm::Error error =
            toolkit.files->readsLater([path = request.model] { return filesOfModelAt(path); }))
      return error;
  auto folder = WorkingFolder::create(folderOf(request.output));
  if (!folder)
    return folder.takeError();
  Candidates made(request, toolkit, std::move(*folder));
  made.bestName = "whole.onnx";
  // Errors in the model name the user's file.
  if (auto original = importModel(request.model, toolkit.ops, toolkit.limits); !original)
    return original.takeError();
  if (llvm::Error error = made.takeFiles(made.bestName))
    return error;
  if (!made.manifest.empty() && toolkit.files)
    if (llvm::Error error =
            toolkit.files->ensureWrites(manifestPathBeside(request.output), "the manifest"))
      return error;
  auto model = importModel(made.folder.path(made.bestName), toolkit.ops, toolkit.limits);
  if (!model)
    return model.takeError();
  made.model = std::move(*model);
  llvm::Error contradiction = inferShapes(made.model->graph());
  made.infersTypes = !contradiction;
  llvm::consumeError(std::move(contradiction));
  std::error_code code;
  const std::string original = fs::absolute(request.model, code).string();
  auto expected = made.exitCodeOf(code ? request.model : original);
  if (!expected)
    return expected.takeError();
  made.expected = *expected;
  auto again = made.exitCodeOf(made.folder.path(made.bestName));
  if (!again)
    return again.takeError();
  if (*again != *expected)
    return usageError("the command's exit code is {} for the model and {} for a copy of it",
                      *expected, *again)
        .hint("a command must give the same code every time");
  return made;
}

llvm::Expected<int> Candidates::exitCodeOf(const std::string& file) const {
  std::string command = request.command;
  const std::string word = shellWord(file);
  for (size_t at = command.find("{}"); at != std::string::npos;
       at = command.find("{}", at + word.size()))
    command.replace(at, 2, word);
  auto end = runCommand(command, request.limit);
  if (!end)
    return end.takeError();
  if (!end->isTimeout)
    return end->code;
  if (!tested)
    return usageError("the command takes more than {} s on the whole model", request.limit.count())
        .hint("--timeout");
  return -1;
}

llvm::Expected<std::unique_ptr<Model>> Candidates::read(const std::string& name) const {
  auto read = importModel(folder.path(name), toolkit.ops, toolkit.limits);
  if (!read) {
    llvm::consumeError(read.takeError());
    return nullptr;
  }
  llvm::Error contradiction = inferShapes((*read)->graph());
  const bool isContradictory = static_cast<bool>(contradiction);
  llvm::consumeError(std::move(contradiction));
  if (isContradictory && infersTypes)
    return nullptr;
  return read;
}

llvm::Error Candidates::keep(const std::string& name, std::unique_ptr<Model> candidate) {
  folder.remove(manifestNameFor(bestName));
  folder.remove(bestName);
  bestName = name;
  model = std::move(candidate);
  return hasData() ? llvm::Error::success() : writeOutput();
}

llvm::Expected<bool> Candidates::attempt(CandidateEdit edit) {
  auto copy = importModel(folder.path(bestName), toolkit.ops, toolkit.limits);
  if (!copy)
    return copy.takeError();
  llvm::consumeError(inferShapes((*copy)->graph()));
  isUnchanged = false;
  if (!edit(**copy))
    return false;
  if (!keepsDeadNodes)
    removeUnused(**copy);
  if ((*copy)->graph().outputs().empty())
    return false;
  if (llvm::Error error = verify(**copy)) {
    llvm::consumeError(std::move(error));
    return false;
  }
  const std::string name = formatted("candidate-{}.onnx", ++made);
  const auto reject = [&] {
    folder.remove(manifestNameFor(name));
    folder.remove(name);
    return false;
  };
  if (llvm::Error error = exportModel(**copy, folder.path(name))) {
    Diagnostic diagnostic = takeDiagnostic(std::move(error));
    if (isIoError(diagnostic))
      return makeError(std::move(diagnostic));
    return reject();
  }
  // An edit that changes nothing would be repeated forever.
  isUnchanged = haveSameBytes(folder.path(name), folder.path(bestName));
  if (isUnchanged)
    return reject();
  auto written = read(name);
  if (!written)
    return written.takeError();
  if (!*written)
    return reject();
  if (hasManifest())
    if (llvm::Error error = folder.link(manifestOfEdited, manifestNameFor(name)))
      return error;
  ++tested;
  auto code = exitCodeOf(folder.path(name));
  if (!code)
    return code.takeError();
  if (*code != expected)
    return reject();
  if (hasManifest())
    manifest = manifestOfEdited;
  if (llvm::Error error = keep(name, std::move(*written)))
    return error;
  return true;
}

llvm::Expected<bool> Candidates::attemptWithoutManifest() {
  if (!hasManifest())
    return false;
  folder.remove(manifestNameFor(bestName));
  ++tested;
  auto code = exitCodeOf(folder.path(bestName));
  if (!code)
    return code.takeError();
  if (*code == expected) {
    manifest.clear();
    return true;
  }
  if (llvm::Error error = folder.link(manifest, manifestNameFor(bestName)))
    return error;
  return false;
}

llvm::Expected<bool> Candidates::attemptWithoutDeadNodes() {
  keepsDeadNodes = false;
  auto accepted = attempt([](Model& whole) {
    whole.markRedescribed(); // A file that nothing edited would be written byte for byte.
    return true;
  });
  if (accepted && !*accepted && !isUnchanged)
    keepsDeadNodes = true;
  return accepted;
}

bool Candidates::hasData() const { return !externalLocationsOf(*model).empty(); }

ReducedSize Candidates::size() const {
  ReducedSize size;
  Graph& graph = model->graph();
  const auto count = [&](Graph& nested) {
    for ([[maybe_unused]] const Node& node : nested.nodes())
      ++size.nodes;
    size.initializers += nested.initializers().size();
  };
  forEachGraph(graph, count);
  for (const auto& function : model->functions)
    forEachGraph(function->body, count);
  size.inputs = graph.inputs().size();
  size.outputs = graph.outputs().size();
  size.functions = model->functions.size();
  std::error_code code;
  const uintmax_t bytes = fs::file_size(folder.path(bestName), code);
  size.bytes = code ? 0 : static_cast<uint64_t>(bytes);
  return size;
}

llvm::Error Candidates::writeOutput() const {
  // Candidates are not declared as inputs: numbers of their files are used again once they are
  // gone.
  OutputFiles outputs(*toolkit.files);
  if (hasData()) {
    auto written = importModel(folder.path(bestName), toolkit.ops, toolkit.limits);
    if (!written)
      return written.takeError();
    ExportOptions options;
    options.placement = ExternalPlacement::Copy;
    options.externalFile = fs::path(request.output).filename().string() + ".data";
    if (llvm::Error error = exportModel(**written, request.output, options))
      return error;
  } else if (llvm::Error error = addCopy(folder.path(bestName), request.output, outputs)) {
    return error;
  }
  if (hasManifest())
    if (llvm::Error error = addCopy(manifest, manifestPathBeside(request.output), outputs))
      return error;
  return outputs.commit();
}

} // namespace kvopt::driver
