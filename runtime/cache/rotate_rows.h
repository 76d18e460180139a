// Rotation of cached rows to other positions.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/memory/tensor_view.h"

namespace kvopt::runtime {

/// Whether rows of this element type can be rotated: floating-point numbers that fit into f32.
bool canRotate(ir::ElementType element);

/// Rotates the rows of `rows` by `positions`, which may be negative. Axes may have any extent;
/// columns are along `columnAxis`, whose extent is a multiple of the rotation's width. Each pair
/// (x, y) of a row becomes
///
///   (x cos a - y sin a, x sin a + y cos a),   a = positions * theta
///
/// in f32, rounded once. Requires canRotate of the element type.
void rotateRows(const TensorView& rows, unsigned columnAxis, const ir::ManifestRotation& rotation,
                int64_t positions);

/// The same of rows of `columns` numbers each that are codes (ir/rows/row_code.h), and are
/// multiplied by the number of `scales` in their place; the extent of those along `columnAxis`
/// is 1. Rows become codes again.
void rotateCodedRows(const TensorView& codes, const TensorView& scales, unsigned columnAxis,
                     int64_t columns, const ir::ManifestRotation& rotation, int64_t positions);

/// Moves rows of a tensor forward: [first + dropped, end) to the position `first`.
void moveRowsForward(const TensorView& tensor, unsigned sequenceAxis, int64_t first,
                     int64_t dropped, int64_t end);

} // namespace kvopt::runtime
