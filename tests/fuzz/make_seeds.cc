// Seeds for the fuzz targets: models whose weights have become inputs, as ONNX files and as text,
// and saved caches.
//   make_seeds FOLDER MODEL…     writes FOLDER/importer/<n>.onnx, FOLDER/text/<n>.onnxtxt and
//                                FOLDER/cache/<n>.kvc
#include "ir/output_file.h"
#include "runtime/cache/cache_file.h"
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

/// Batch rows of one length, and of several, in some element types and layouts.
llvm::Error makeCacheSeeds(const std::string& folder) {
  std::vector<std::byte> numbers(4096);
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::byte>(i * 37);
  int index = 0;
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::Int8})
    for (size_t cacheCount : {0, 1, 3})
      for (bool ragged : {false, true}) {
        const std::vector<int64_t> lengths =
            ragged ? std::vector<int64_t>{3, 0} : std::vector<int64_t>{3, 3};
        std::vector<StoredCache> caches(cacheCount);
        for (size_t i = 0; i < cacheCount; ++i) {
          StoredCache& cache = caches[i];
          cache.entry = {fmt::format("past.{}", i), element, 2, {2, 2, 3, 4}, {}};
          if (!ragged) {
            cache.parts = {TensorView::contiguous(element, {2, 2, 3, 4}, numbers.data())};
            continue;
          }
          cache.entry.batchAxis = 0;
          for (int64_t tokens : lengths)
            cache.parts.push_back(
                TensorView::contiguous(element, {1, 2, tokens, 4}, numbers.data()));
        }
        const std::string path = fmt::format("{}/cache/{}.kvc", folder, index++);
        if (llvm::Error error = writeCacheFile(path, {}, lengths, caches))
          return error;
      }
  return llvm::Error::success();
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: make_seeds FOLDER MODEL…\n", stderr);
    return 2;
  }
  const std::string folder = argv[1];
  for (const char* target : {"importer", "text", "cache"})
    std::filesystem::create_directories(folder + "/" + target);
  if (llvm::Error error = kvopt::makeCacheSeeds(folder)) {
    std::fprintf(stderr, "%s\n", kvopt::takeDiagnostic(std::move(error)).str().c_str());
    return 1;
  }
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
