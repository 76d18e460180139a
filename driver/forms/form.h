// The form of a written model: who runs it, how it keeps its caches, and what their rows hold.
#pragma once

#include "driver/options/row_kind.h"

#include <cstdint>
#include <optional>
#include <string>

namespace kvopt::driver {

/// The program that runs a written model. Its operators are the ones that the model uses.
enum class Engine : uint8_t {
  Ort,       ///< ONNX Runtime: its own operators of attention
  Onnx,      ///< any engine with ONNX's Attention, opset 23 or 24
  Kvopt,     ///< kvopt's runtime; other engines run the function bodies
  Primitive, ///< any engine: MatMul and Softmax
};

/// How a written model keeps its caches.
enum class CacheKind : uint8_t {
  Grow,   ///< the present is the past with the new rows, and is handed on
  Buffer, ///< past and present are one buffer
  Ring,   ///< as many rows as the window
  Blocks, ///< each block of rows is an input
  Paged,  ///< pools of blocks that a table lists
};

/// How a model with caches in blocks is divided into several.
enum class SplitKind : uint8_t {
  None,
  Pyramid, ///< a variant for each number of past blocks
  Tiles,   ///< parts between attentions, and tiles that a host loops over
};

struct Form {
  Engine engine = Engine::Kvopt;
  CacheKind cache = CacheKind::Buffer;
  RowKind rows = RowKind::Same;
  /// Whether keys and values that are expanded from compressed rows are kept as those rows.
  bool isLatent = false;
  SplitKind split = SplitKind::None;
  /// Tokens of a block, or of a step with rings; nullopt: the default of the form.
  std::optional<int64_t> size;

  bool operator==(const Form&) const = default;

  /// Whether rows of float32 caches are rounded to a floating-point type of 16 bits.
  bool roundsRows() const { return rows == RowKind::Float16 || rows == RowKind::BFloat16; }
  /// Bits of codes whose scales are constants, which a calibration determines; 0 for other rows.
  int calibratedBits() const {
    if (engine != Engine::Ort)
      return 0;
    return rows == RowKind::Int8 ? 8 : rows == RowKind::Int4 ? 4 : 0;
  }
};

/// The words of the command line for one value of each axis.
const char* wordOf(Engine engine);
const char* wordOf(CacheKind cache);
const char* wordOf(RowKind rows);
const char* wordOf(SplitKind split);

/// The options that choose the form, without those that say the default: "--to kvopt --cache ring".
std::string optionsOf(const Form& form);

} // namespace kvopt::driver
