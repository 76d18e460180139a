// Seeds for the fuzz targets: models whose weights have become inputs, as ONNX files and as text.
//   make_seeds FOLDER MODEL…     writes FOLDER/importer/<n>.onnx and FOLDER/text/<n>.onnxtxt
#include "ir/output_file.h"
#include "tests/fuzz/exercise.h"

#include <filesystem>

namespace kvopt {
namespace {

/// Larger tensors are weights; smaller ones are shapes, axes and scalars, which passes look into.
constexpr int64_t mostElements = 32;

void replaceWeights(Graph& graph) {
  std::vector<Value*> weights;
  for (const std::unique_ptr<Value>& initializer : graph.initializers())
    if (initializer->constant() && initializer->constant()->elementCount() > mostElements &&
        !initializer->isGraphOutput())
      weights.push_back(initializer.get());
  for (Value* weight : weights) {
    Value& input = graph.addInput(graph.freshName("w"), weight->type());
    weight->replaceAllUsesWith(input);
    graph.removeInitializer(*weight);
  }
}

llvm::Error writeFile(const std::string& path, llvm::StringRef contents) {
  auto file = OutputFile::create(path);
  if (!file)
    return file.takeError();
  if (llvm::Error error = file->write(contents))
    return error;
  return file->commit();
}

llvm::Error makeSeed(const std::string& path, const std::string& folder, int index) {
  auto model = importModel(path, fuzz::Registries::get().ops);
  if (!model)
    return model.takeError();
  replaceWeights((*model)->graph());
  ExportOptions options;
  options.reserialize = true;
  auto bytes = exportModelBytes(**model, options);
  if (!bytes)
    return bytes.takeError();
  if (llvm::Error error = writeFile(fmt::format("{}/importer/{}.onnx", folder, index), *bytes))
    return error;
  PrintOptions print;
  print.maxTensorElements = 4096;
  return writeFile(fmt::format("{}/text/{}.onnxtxt", folder, index), printText(**model, print));
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: make_seeds FOLDER MODEL…\n", stderr);
    return 2;
  }
  const std::string folder = argv[1];
  for (const char* target : {"importer", "text"})
    std::filesystem::create_directories(folder + "/" + target);
  int written = 0;
  for (int i = 2; i < argc; ++i) {
    if (llvm::Error error = kvopt::makeSeed(argv[i], folder, i))
      std::fprintf(stderr, "%s\n", kvopt::takeDiagnostic(std::move(error)).str().c_str());
    else
      ++written;
  }
  std::printf("%d seeds of %d models\n", written, argc - 2);
  return written == 0;
}
