// Earlier bodies, as edits of the current text.
#include "ir/ops/kvopt/earlier_bodies.h"

#include "ir/ops/kvopt/cache_operator.h"
#include "ir/ops/kvopt/function_body_parts.h"
#include "support/format.h"

namespace kvopt::ir {
namespace {

std::string replaced(llvm::StringRef text, llvm::StringRef part, llvm::StringRef by) {
  std::string result;
  for (size_t at = text.find(part); at != llvm::StringRef::npos; at = text.find(part)) {
    result += text.take_front(at).str() + by.str();
    text = text.drop_front(at + part.size());
  }
  return result + text.str();
}

/// The same with rows of folded caches in a shape with an explicit number of rows:
/// `<cache>_capacity` instead of the current 0.
std::string withCapacities(llvm::StringRef text) {
  constexpr llvm::StringLiteral shape = "_rows_shape = Concat <axis = 0> (batch, groups, i0, ";
  std::string result;
  while (!text.empty()) {
    const auto [line, rest] = text.split('\n');
    text = rest;
    const size_t at = line.find(shape);
    result += at == llvm::StringRef::npos
                  ? line.str()
                  : replaced(line, "i0", line.take_front(at).trim().str() + "_capacity");
    result += '\n';
  }
  return replaced(result, "_folded_column, ", "_folded_rows, ");
}

/// Attention with lengths that reads all rows, with one mask column for each.
std::string sdpaOverAllRows(const BodyForm& form) {
  constexpr const char* rows = R"(
    key_shape = Shape (key)
    groups = Gather (key_shape, i1)
    length_list = Gather (key_shape, i2)
    longest = Squeeze (length_list, i0)
    value_shape = Shape (value)
    value_width = Gather (value_shape, i3)
    column_shape = Concat <axis = 0> (rest, i1)
    all_slots = Range (zero_index, longest, one_index)
    slot_row = Unsqueeze (all_slots, i0)
    keys = Identity (key)
    values = Identity (value)
    start = Reshape (past_length, column_shape)
    end = Add (start, rows)
    valid = Less (slot_row, end)
)";
  return functionText(form.opset,
                      "Sdpa <scale, causal, window, softcap, mask_boolean>\n"
                      "    (query, key, value, mask, sinks, past_length) => (output)",
                      std::string(extentsText) + rows + attentionText(form));
}

} // namespace

std::vector<std::string> earlierBodies(llvm::StringRef op, const BodyForm& form,
                                       const std::string& text) {
  std::vector<std::string> bodies;
  const auto add = [&](std::string earlier) {
    if (earlier != text)
      bodies.push_back(std::move(earlier));
  };
  add(withCapacities(text));
  if (op == "Sdpa" && form.lengths)
    add(sdpaOverAllRows(form));
  if (op == "Sdpa" && !form.lengths)
    // A shape that is valid for a single batch row.
    add(replaced(text, "column_shape = Concat <axis = 0> (rest, i1)",
                 "column_shape = Concat <axis = 0> (i1, i1)"));
  if (CacheOperator::named(OpName(kvoptDomain, op)) == CacheOperator{})
    // Keys with the width of the query.
    add(replaced(text, "(batch, groups, capacity, key_width)", "(batch, groups, capacity, width)"));
  return bodies;
}

} // namespace kvopt::ir
