// Counting from the number of rows in a cache.
#include "passes/builders/places_after.h"

namespace kvopt::builders {
using namespace ir;

Value& PlacesAfter::pastRows(const Value& like, bool isScalar) {
  return build.castTo(build.value(build.extent(cache, rowAxis, isScalar)),
                      like.type().elementType());
}

PlacesAfter::Operands PlacesAfter::ofRange(Operands operands) {
  Value& start = pastRows(*operands[1], /*isScalar=*/true);
  operands[0] = &start;
  operands[1] = &build.node("Add", {*operands[1], start}, {}, "end");
  return operands;
}

PlacesAfter::Operands PlacesAfter::ofTable(Operands operands) {
  Value& start = pastRows(*operands[2], /*isScalar=*/false);
  operands[1] = &start;
  operands[2] = &build.node("Add", {*operands[2], start}, {}, "end");
  return operands;
}

} // namespace kvopt::builders
