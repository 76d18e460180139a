// Tensor types in ONNX's textual syntax. Private to the text reader and printer.
#pragma once

#include "ir/text/lexer.h"
#include "ir/type.h"

namespace kvopt::ir {

/// Whether the cursor is at the first word of a type.
bool atType(const TextCursor& cursor);
/// Reads a type: `float` (a scalar), `float[]` (unknown rank), `float[N, 2, ?, "past + 1"]`.
bool readType(TextCursor& cursor, TensorType& type);
/// The inverse; empty if neither element type nor rank is known. An unknown element type with a
/// known rank is written as `undefined`, and an element type without a name as `dtype_<number>`.
std::string typeText(const TensorType& type);

} // namespace kvopt::ir
