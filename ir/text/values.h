// Tensor literals and floats in ONNX's textual syntax. Private to the text reader and printer.
#pragma once

#include "ir/tensor.h"
#include "ir/text/lexer.h"
#include "ir/type.h"

namespace kvopt::ir {

/// Reads a literal such as `{1, 2}` of a type with fixed extents, which was read at `typeOffset`.
/// Compares the number of elements with the length of the remaining text before it allocates
/// memory.
bool readTensorLiteral(TextCursor& cursor, const TensorType& type, size_t typeOffset,
                       TensorRef& tensor);
/// Literal such as `{1, 2}`; `{…}` if there are more than `maxElements`, or the contents are
/// unavailable.
std::string tensorLiteralText(const TensorData& tensor, int64_t maxElements);

/// Nearest float to a number in text form: an integer, a decimal, inf or nan, with an optional
/// sign. nullopt if it overflows.
std::optional<float> floatFromText(llvm::StringRef number);
/// Text of a number that is read back as the same float.
std::string floatText(float value);

} // namespace kvopt::ir
