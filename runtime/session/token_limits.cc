// Limits of ids by tables and element types.
#include "runtime/session/token_limits.h"

#include "ir/manifest/documented_inputs.h"
#include "runtime/session/input_plan.h"
#include "support/diagnostic.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

namespace {

/// Largest number of an integer type; INT64_MAX for other types.
int64_t largestOf(ElementType element) {
  const auto bits = static_cast<int>(bitWidth(element).value_or(64));
  if (!isInteger(element) || bits >= 64)
    return INT64_MAX;
  return (int64_t{1} << (isUnsigned(element) ? bits : bits - 1)) - 1;
}

/// Elements of an int64 or int32 tensor; none of other types.
std::vector<int64_t> idsOf(const TensorView& view) {
  const bool isWide = view.element == ElementType::Int64;
  std::vector<int64_t> ids;
  if (!isWide && view.element != ElementType::Int32)
    return ids;
  Extents index(view.rank(), 0);
  for (int64_t count = view.elementCount(); count > 0; --count) {
    int64_t place = 0;
    for (size_t axis = 0; axis < index.size(); ++axis)
      place += index[axis] * view.strides[axis];
    ids.push_back(isWide ? view.as<int64_t>()[place] : view.as<int32_t>()[place]);
    for (size_t axis = index.size(); axis-- > 0 && ++index[axis] == view.shape[axis];)
      index[axis] = 0;
  }
  return ids;
}

} // namespace

TokenLimits TokenLimits::of(const Graph& graph, llvm::ArrayRef<ManifestInput> described) {
  TokenLimits made;
  for (const Value* input : tokenInputs(graph, described)) {
    const TokenIds ids = tokenIdsOf(*input);
    const int64_t ofType = largestOf(input->type().elementType());
    const int64_t ofTables = ids.most() > 0 ? ids.most() - 1 : INT64_MAX;
    made.limits.push_back({input, std::min(ofType, ofTables), ofType < ofTables, ids.areReplaced});
  }
  return made;
}

llvm::Error TokenLimits::check(const Limit& limit, int64_t token) {
  if (token >= 0 && token <= limit.largest)
    return llvm::Error::success();
  if (limit.isOfType)
    return usageError("there is no token {}: '{}' has the type {}", token, limit.input->name(),
                      dtypeName(limit.input->type().elementType()));
  if (limit.largest == INT64_MAX)
    return usageError("there is no token {}", token);
  return usageError("there is no token {}: the model has tokens from 0 to {}", token,
                    limit.largest);
}

llvm::Error TokenLimits::check(llvm::ArrayRef<int64_t> tokens) const {
  for (const int64_t token : tokens) {
    if (token < 0 && limits.empty())
      return usageError("there is no token {}", token);
    for (const Limit& limit : limits)
      if (llvm::Error error = check(limit, token))
        return error;
  }
  return llvm::Error::success();
}

llvm::Error TokenLimits::check(llvm::ArrayRef<NamedView> inputs) const {
  for (const NamedView& input : inputs)
    for (const Limit& limit : limits)
      if (!limit.areReplaced && input.name == limit.input->name())
        for (const int64_t token : idsOf(input.view))
          if (llvm::Error error = check(limit, token))
            return error;
  return llvm::Error::success();
}

} // namespace kvopt::runtime
