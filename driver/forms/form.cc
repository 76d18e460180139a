// Words and options of forms.
#include "driver/forms/form_table.h"

#include "support/format.h"

#include "llvm/Support/ErrorHandling.h"

namespace kvopt::driver {

const char* wordOf(Engine engine) {
  switch (engine) {
  case Engine::Ort:
    return "ort";
  case Engine::Onnx:
    return "onnx";
  case Engine::Kvopt:
    return "kvopt";
  case Engine::Primitive:
    return "primitive";
  }
  llvm_unreachable("unknown engine");
}

const char* wordOf(CacheKind cache) {
  switch (cache) {
  case CacheKind::Grow:
    return "grow";
  case CacheKind::Buffer:
    return "buffer";
  case CacheKind::Ring:
    return "ring";
  case CacheKind::Blocks:
    return "blocks";
  case CacheKind::Paged:
    return "paged";
  }
  llvm_unreachable("unknown kind of cache");
}

const char* wordOf(RowKind rows) { return rowWords[static_cast<size_t>(rows)]; }

const char* wordOf(SplitKind split) {
  switch (split) {
  case SplitKind::None:
    return "none";
  case SplitKind::Pyramid:
    return "pyramid";
  case SplitKind::Tiles:
    return "tiles";
  }
  llvm_unreachable("unknown split");
}

std::string optionsOf(const Form& form) {
  const std::string size = form.size ? formatted(":{}", *form.size) : "";
  std::string text = formatted("--to {}", wordOf(form.engine));
  if (form.split != SplitKind::None)
    text += formatted(" --split {}{}", wordOf(form.split), size);
  else if (form.engine == Engine::Onnx && form.cache == CacheKind::Grow)
    text += " --opset 23";
  else if (form.cache != defaultCache(form.engine, std::nullopt))
    text += formatted(" --cache {}{}", wordOf(form.cache), size);
  if (form.rows != RowKind::Same)
    text += formatted(" --rows {}", wordOf(form.rows));
  if (form.isLatent)
    text += " --latent";
  return text;
}

} // namespace kvopt::driver
