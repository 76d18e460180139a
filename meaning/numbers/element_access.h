// Elements in memory as integers and as doubles.
#pragma once

#include "ir/element_type.h"

#include <cstddef>
#include <cstdint>

namespace kvopt::meaning {

/// Size of an element in memory, in bytes; types of less than 8 bits take a byte each. 0 for types
/// that have no numbers here.
unsigned widthInMemory(ir::ElementType type);

/// Reads elements at places (counted in elements) into a list. Booleans are 0 and 1.
void loadIntegers(ir::ElementType type, const std::byte* data, const int64_t* places, size_t count,
                  int64_t* result);
void loadReals(ir::ElementType type, const std::byte* data, const int64_t* places, size_t count,
               double* result);
/// The same from a place on, each `step` after the one before.
void loadIntegers(ir::ElementType type, const std::byte* data, int64_t place, int64_t step,
                  size_t count, int64_t* result);
void loadReals(ir::ElementType type, const std::byte* data, int64_t place, int64_t step,
               size_t count, double* result);
/// Writes elements one after the other. Integers keep their lowest bits, and reals are rounded to
/// the nearest number of the type, ties to even.
void storeIntegers(ir::ElementType type, std::byte* data, int64_t place, const int64_t* values,
                   size_t count);
void storeReals(ir::ElementType type, std::byte* data, int64_t place, const double* values,
                size_t count);

} // namespace kvopt::meaning
