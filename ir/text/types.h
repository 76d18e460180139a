// Tensor types in ONNX's textual syntax. Private to the text reader and printer.
#pragma once

#include "ir/text/lexer.h"
#include "ir/type.h"

namespace kvopt::ir {

/// Whether the cursor stands at the first word of a type.
bool atType(const TextCursor& cursor);
/// `float` (a scalar), `float[]` (rank not known), `float[N, 2, ?, "past + 1"]`.
bool readType(TextCursor& cursor, TensorType& type);
/// The inverse; empty when neither element type nor rank is known. A rank that is known of an
/// unknown element type is written with the word `undefined`, an element type that has no name as
/// `dtype_<number>`.
std::string typeText(const TensorType& type);

} // namespace kvopt::ir
