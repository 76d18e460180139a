// Comparison of the columns of parts with those of the whole.
#include "passes/targets/ort_gqa/packed_rows.h"

#include "ir/movement.h"
#include "ir/node.h"
#include "passes/analysis/rotation/column_forms.h"

#include "llvm/ADT/STLExtras.h"

#include <array>

namespace kvopt::targets {
using namespace analysis;
using namespace ir;

namespace {

bool isRows(const Value& value) {
  return value.type().hasRank() && value.type().rank() == 3 && value.type().dim(2).value();
}

/// Whether `whole` has the batch rows and tokens of `part`.
bool hasTokensOf(const Value& part, const Value& whole) {
  return whole.type().dim(0).isKnownEqual(part.type().dim(0)) &&
         whole.type().dim(1).isKnownEqual(part.type().dim(1));
}

} // namespace

Value* packedRows(const Value& query, const Value& key, const Value& value) {
  const std::array<const Value*, 3> parts{&query, &key, &value};
  int64_t width = 0;
  for (const Value* part : parts) {
    if (!isRows(*part))
      return nullptr;
    width += *part->type().dim(2).value();
  }
  Value* whole = nullptr;
  for (const Node* node = query.producer(); node; node = whole ? whole->producer() : nullptr) {
    whole = movedOperand(*node);
    if (!whole)
      return nullptr;
    if (isRows(*whole) && *whole->type().dim(2).value() == width)
      break;
  }
  if (!whole || !isRows(*whole) || whole->type().dim(2).value() != width)
    return nullptr;
  ColumnForms forms(whole);
  const auto all = forms.of(*whole);
  if (!all)
    return nullptr;
  llvm::ArrayRef<ColumnForm> rest = *all;
  for (const Value* part : parts) {
    const auto columns = hasTokensOf(*part, *whole) ? forms.of(*part) : nullptr;
    if (!columns || columns->size() > rest.size() ||
        llvm::ArrayRef<ColumnForm>(*columns) != rest.take_front(columns->size()))
      return nullptr;
    rest = rest.drop_front(columns->size());
  }
  return rest.empty() ? whole : nullptr;
}

} // namespace kvopt::targets
