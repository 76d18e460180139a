// Tensor literals and floats in ONNX's textual syntax. Private to the text reader and printer.
#pragma once

#include "ir/tensor.h"
#include "ir/text/lexer.h"
#include "ir/type.h"

namespace kvopt::ir {

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

} // namespace kvopt::ir
