// Seeds for the fuzz targets: models whose weights have become inputs, as ONNX files and as text;
// saved caches; manifests, caches, command lines and pairs of generated decoders.
//   make_seeds FOLDER PLACES MODEL…     writes FOLDER/<target>/<n>
// Every kind of structural change is made at PLACES places, from 1 to 12.
#include "runtime/cache/cache_file.h"
#include "support/file_access.h"
#include "support/output_file.h"
#include "tests/fuzz/decoders.h"
#include "tests/fuzz/exercise.h"
#include "tests/fuzz/structural_change.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace kvopt {
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

/// Larger tensors are weights; smaller ones are shapes, axes and scalars, which passes look into.
constexpr int64_t mostElements = 32;
constexpr int mostPlaces = 12;

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
  FileAccess access;
  auto file = OutputFile::create(path, access);
  if (!file)
    return file.takeError();
  if (llvm::Error error = file->write(contents))
    return error;
  return file->commit();
}

llvm::Error makeSeed(const std::string& path, const std::string& folder, int index) {
  auto model = importModel(path, fuzz::toolkit().ops);
  if (!model)
    return model.takeError();
  replaceWeights((*model)->graph());
  ExportOptions options;
  options.reserialize = true;
  auto bytes = exportModelBytes(**model, options);
  if (!bytes)
    return bytes.takeError();
  if (llvm::Error error = writeFile(formatted("{}/importer/{}.onnx", folder, index), *bytes))
    return error;
  PrintOptions print;
  print.maxTensorElements = 4096;
  return writeFile(formatted("{}/text/{}.onnxtxt", folder, index), printText(**model, print));
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
          cache.entry = {formatted("past.{}", i), element, 2, {2, 2, 3, 4}, {}};
          if (!ragged) {
            cache.parts = {TensorView::contiguous(element, {2, 2, 3, 4}, numbers.data())};
            continue;
          }
          cache.entry.batchAxis = 0;
          for (int64_t tokens : lengths)
            cache.parts.push_back(
                TensorView::contiguous(element, {1, 2, tokens, 4}, numbers.data()));
        }
        const std::string path = formatted("{}/cache/{}.kvc", folder, index++);
        FileAccess access;
        auto file = OutputFile::create(path, access);
        if (!file)
          return file.takeError();
        if (llvm::Error error = writeCacheFile(std::move(*file), {}, lengths, caches))
          return error;
      }
  return llvm::Error::success();
}

/// Of each decoder its manifest, the whole model, and what its session saves, after the byte that
/// selects the decoder.
llvm::Error makeDecoderSeeds(const std::string& folder) {
  for (size_t i = 0; i < fuzz::decoders().size(); ++i) {
    const fuzz::Decoder& decoder = fuzz::decoders()[i];
    const std::string number(1, static_cast<char>(i));
    if (llvm::Error error = writeFile(formatted("{}/manifest/{}.json", folder, decoder.name),
                                      number + decoder.manifest.json()))
      return error;
    auto bytes = exportModelBytes(*decoder.model);
    if (!bytes)
      return bytes.takeError();
    if (llvm::Error error =
            writeFile(formatted("{}/manifest/{}.onnx", folder, decoder.name), '\xff' + *bytes))
      return error;
    auto session = Session::create(*decoder.model, fuzz::kernels(), decoder.manifest,
                                   fuzz::smallSession(decoder.manifest));
    if (!session)
      return session.takeError();
    fuzz::takeSteps(**session);
    const std::string saved = formatted("{}/session_cache/{}.kvc", folder, decoder.name);
    if (llvm::Error error = (*session)->save(saved)) {
      std::fprintf(stderr, "%s: %s\n", decoder.name.c_str(),
                   takeDiagnostic(std::move(error)).str().c_str());
    } else {
      std::ostringstream cache;
      cache << std::ifstream(saved, std::ios::binary).rdbuf();
      if (llvm::Error failed = writeFile(saved, number + cache.str()))
        return failed;
    }
  }
  return llvm::Error::success();
}

llvm::Error makeCommandSeeds(const std::string& folder) {
  constexpr const char* lines[] = {
      "inspect\ngrowing.onnx\nshared.onnx",
      "inspect\nint8.onnx\n--format\njson\n-v",
      "explain\ngrowing.onnx\n--to\nkvopt\n--layer\n0\n--rule\nraise-spelled-attention",
      "rewrite\ngrowing.onnx\n-o\nout.onnx\n--to\nkvopt\n--capacity\n16\n--verify\nquick",
      "rewrite\ngrowing.onnx\n--dry-run\n--to\nblocks:4\n--require\nany\n--layers\n0-1",
      "verify\ngrowing.onnx\ngrowing.onnx\n--prompt\n3\n--steps\n2\n--pad\nleft\n--batch\n2",
      "run\nshared.onnx\n--tokens\n1,2,3\n--steps\n2\n--save-cache\na.kv\n--stats",
      "run\nshared.onnx\n--text\nab\n--temperature\n0.8\n--top-k\n3\n--seed\n7\n--eos\n2",
      "run\nstates.onnx\n--tokens\n1\n--load-cache\na.kv\n--crop\n1\n--mode\nstateful",
      "diff\ngrowing.onnx\nshared.onnx\n--format\nsvg\n--layer\n0",
      "opt\ngrowing.onnx\n--pipeline\nnormalize\n--explain\n--timing\n--print-ir-after\nall",
      "list\nreasons\n--markdown",
      "gen\nllama\n-o\nnew.onnx\n--layers\n1\n--hidden\n16",
      "completion\nbash",
      "--version",
  };
  int number = 0;
  for (const char* line : lines)
    if (llvm::Error error = writeFile(formatted("{}/command/{}", folder, number++), line))
      return error;
  return llvm::Error::success();
}

/// Of each decoder an unchanged copy, and one of each kind of change.
llvm::Error makePairSeeds(const std::string& folder) {
  constexpr int kinds = 6;
  for (size_t i = 0; i < fuzz::decoders().size(); ++i)
    for (int kind = -1; kind < kinds; ++kind) {
      std::string choices(1, static_cast<char>(i));
      if (kind >= 0)
        choices += {static_cast<char>(kind), 1, 0};
      const std::string path =
          formatted("{}/verify/{}_{}", folder, fuzz::decoders()[i].name, kind + 1);
      if (llvm::Error error = writeFile(path, choices))
        return error;
    }
  return llvm::Error::success();
}

/// Every kind of structural change to every decoder, at `places` places that differ from kind to
/// kind.
llvm::Error makeStructureSeeds(const std::string& folder, int places) {
  for (size_t i = 0; i < fuzz::decoders().size(); ++i)
    for (size_t kind = 0; kind < fuzz::StructuralChange::kinds; ++kind)
      for (int n = 0; n < places; ++n) {
        const int place = (n + static_cast<int>(i + kind) + 1) % mostPlaces;
        const std::string choices{static_cast<char>(i), static_cast<char>(kind), 0,
                                  static_cast<char>(place), static_cast<char>(place / 2)};
        const std::string path =
            formatted("{}/structure/{}_{}_{}", folder, fuzz::decoders()[i].name, kind, n);
        if (llvm::Error error = writeFile(path, choices))
          return error;
      }
  return llvm::Error::success();
}

int failed(llvm::Error error) {
  std::fprintf(stderr, "%s\n", takeDiagnostic(std::move(error)).str().c_str());
  return 1;
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) {
  const int places = argc > 2 ? std::atoi(argv[2]) : 0;
  if (argc < 4 || places < 1 || places > kvopt::mostPlaces) {
    std::fputs("usage: make_seeds FOLDER PLACES MODEL…\n", stderr);
    return 2;
  }
  const std::string folder = argv[1];
  for (const char* target :
       {"importer", "text", "cache", "manifest", "session_cache", "command", "verify", "structure"})
    std::filesystem::create_directories(folder + "/" + target);
  for (auto* make : {kvopt::makeCacheSeeds, kvopt::makeDecoderSeeds, kvopt::makeCommandSeeds,
                     kvopt::makePairSeeds})
    if (llvm::Error error = make(folder))
      return kvopt::failed(std::move(error));
  if (llvm::Error error = kvopt::makeStructureSeeds(folder, places))
    return kvopt::failed(std::move(error));
  int written = 0;
  for (int i = 3; i < argc; ++i) {
    if (llvm::Error error = kvopt::makeSeed(argv[i], folder, i))
      std::fprintf(stderr, "%s\n", kvopt::takeDiagnostic(std::move(error)).str().c_str());
    else
      ++written;
  }
  std::printf("%d seeds of %d models\n", written, argc - 3);
  return written == 0;
}
