// Types and tensor literals in ONNX's textual syntax. Private to the text reader and printer.
#pragma once

#include "ir/tensor.h"
#include "ir/text_lexer.h"
#include "ir/type.h"

namespace kvopt {

/// Whether the cursor stands at the first word of a type.
bool atType(const TextCursor& cursor);
/// `float` (a scalar), `float[]` (rank not known), `float[N, 2, ?, "past + 1"]`.
bool readType(TextCursor& cursor, TensorType& type);
/// The inverse; empty when neither element type nor rank is known. A rank that is known of an
/// unknown element type is written with the word `undefined`, an element type that has no name as
/// `dtype_<number>`.
std::string typeText(const TensorType& type);

/// `{1, 2}` of a type with fixed extents that was read at `typeOffset`. The number of elements is
/// compared with the rest of the text before anything is allocated.
bool readTensorLiteral(TextCursor& cursor, const TensorType& type, size_t typeOffset,
                       TensorRef& tensor);
/// `{1, 2}`; `{…}` when there are more than `maxElements` or the contents cannot be had.
std::string tensorLiteralText(const TensorData& tensor, int64_t maxElements);

/// The nearest value to a number as written: an integer, a decimal, inf or nan with an optional
/// sign. nullopt when it overflows.
std::optional<float> floatFromText(llvm::StringRef number);
/// A number that reads back as a float and as the same one.
std::string floatText(float value);

} // namespace kvopt
