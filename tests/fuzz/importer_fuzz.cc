// Any bytes as an ONNX file.
#include "tests/fuzz/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvopt;
  auto model = importModelBytes(std::as_bytes(std::span<const uint8_t>(data, size)), "",
                                fuzz::toolkit().ops, fuzz::limits);
  if (!model)
    fuzz::refused(model.takeError());
  else
    fuzz::exerciseModel(**model);
  return 0;
}
