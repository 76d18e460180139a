// ai.kvopt::AppendRows: new rows after the valid rows of a past, whose number differs by batch row.
//
//   present[b,g,j,:] = past[b,g,j,:]        for j < n
//                      fresh[b,g,j - n,:]   for n <= j < n + S
//                      0                    otherwise               with n = past_length[b]
//
// past [B,G,P,D], fresh [B,G,S,D], past_length int64 [1] or [B], present [B,G,P+S,D]. A length that
// is negative or greater than P is an error.
#include "ir/ops/kvopt/attention_shapes.h"
#include "ir/ops/kvopt/own_body.h"

namespace kvopt::ir {
namespace {

struct AppendExtentPair {
  int64_t axis;
  const char* what;
};

constexpr AppendExtentPair equalAppendExtents[] = {
    {0, "batch sizes of past and fresh rows"},
    {1, "head counts of past and fresh rows"},
    {3, "widths of past and fresh rows"},
};

llvm::Error inferAppendRows(ShapeContext& context) {
  const TensorType& past = context.type(0);
  const TensorType& fresh = context.type(1);
  for (unsigned operand : {0u, 1u})
    if (llvm::Error error = requireRank(context, operand, 4))
      return error;
  Shape present;
  for (const AppendExtentPair& pair : equalAppendExtents) {
    if (llvm::Error error =
            requireEqual(context, past.dim(pair.axis), fresh.dim(pair.axis), pair.what))
      return error;
    present.push_back(mergedExtent(past.dim(pair.axis), fresh.dim(pair.axis)));
  }
  present.insert(present.begin() + 2, past.dim(2) + fresh.dim(2));
  if (past.elementType() != ElementType::Undefined &&
      fresh.elementType() != ElementType::Undefined && past.elementType() != fresh.elementType())
    return context.error(
        formatted("the past is {}, the fresh rows are {}", past.str(), fresh.str()));
  if (llvm::Error error = checkPastLength(context, 2, present.front()))
    return error;
  context.setResult(0, TensorType(context.element(1), std::move(present)));
  return llvm::Error::success();
}

} // namespace

void register_append_rows(OpRegistry& registry) {
  define(registry, OpName(kvoptDomain, "AppendRows"), 1)
      .in("past")
      .in("fresh")
      .in("past_length")
      .out("present")
      .shape(inferAppendRows)
      .body(checkOwnBody);
}

} // namespace kvopt::ir
