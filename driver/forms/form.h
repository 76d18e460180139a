// The form of a written model: the engine that runs it, the kind of its caches, and the contents of
// their rows.
#pragma once

#include "driver/options/row_kind.h"

#include <cstdint>
#include <optional>
#include <string>

namespace kvopt::driver {

/// The engine that runs a written model, and thereby the operators that the model uses.
enum class Engine : uint8_t {
  Ort,       ///< ONNX Runtime: its own attention operators
  Onnx,      ///< any engine with ONNX's Attention, opset 23 or 24
  Kvopt,     ///< kvopt's runtime; other engines run the function bodies
  Primitive, ///< any engine: MatMul and Softmax
};

/// How a written model keeps its caches.
enum class CacheKind : uint8_t {
  Grow,   ///< the present is the past followed by the new rows; the next step reads it
  Buffer, ///< past and present are one buffer
  Ring,   ///< the number of rows is the window
  Blocks, ///< each block of rows is an input
  Paged,  ///< pools of blocks that a table lists
};

/// How a model with caches in blocks is divided into several models.
enum class SplitKind : uint8_t {
  None,
  Pyramid, ///< a variant for each number of past blocks
  Tiles,   ///< parts between attention layers, and tiles over which a host loops
};

struct Form {
  Engine engine = Engine::Kvopt;
  CacheKind cache = CacheKind::Buffer;
  RowKind rows = RowKind::Same;
  /// Whether the caches hold the compressed rows from which keys and values are expanded.
  bool isLatent = false;
  SplitKind split = SplitKind::None;
  /// Number of tokens of a block, or of a step with rings; nullopt: the form's default.
  std::optional<int64_t> size;

  bool operator==(const Form&) const = default;

  /// Whether rows of float32 caches are rounded to a floating-point type of 16 bits.
  bool roundsRows() const { return rows == RowKind::Float16 || rows == RowKind::BFloat16; }
  /// Number of bits of a code whose scale is a constant from a calibration; 0 for other rows.
  int calibratedBits() const {
    if (engine != Engine::Ort)
      return 0;
    return rows == RowKind::Int8 ? 8 : rows == RowKind::Int4 ? 4 : 0;
  }
};

/// The word of the command line for a value of one axis.
const char* wordOf(Engine engine);
const char* wordOf(CacheKind cache);
const char* wordOf(RowKind rows);
const char* wordOf(SplitKind split);

/// The options that choose the form, without options that repeat a default: "--to kvopt --cache
/// ring".
std::string optionsOf(const Form& form);

} // namespace kvopt::driver
