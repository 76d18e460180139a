// Any bytes as a model in text: mutations of text reach deeper into the passes than those of bytes.
#include "ir/text/reader.h"
#include "tests/fuzz/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvopt;
  const std::string text(reinterpret_cast<const char*>(data), size);
  auto model = readText(text, fuzz::toolkit().ops);
  if (!model)
    fuzz::refused(model.takeError());
  else if (llvm::Error error = admit(**model, fuzz::limits))
    fuzz::refused(std::move(error));
  else
    fuzz::exerciseModel(**model);
  return 0;
}
