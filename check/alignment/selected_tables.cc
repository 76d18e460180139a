// Tables, and the rows in which they differ.
#include "check/alignment/selected_tables.h"

#include "ir/manifest/documented_inputs.h"
#include "ir/onnx/file_place.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <cmath>
#include <map>

namespace kvopt::check {
namespace {

/// Operands of a node that are tables, with the first of the operands that select their rows.
struct Selection {
  unsigned firstTable = 0, lastTable = 0, selector = 1;
};

std::optional<Selection> selectionOf(const ir::Node& node) {
  if (node.is("RotaryEmbedding"))
    return Selection{1, 2, 3};
  if (node.is("com.microsoft::RotaryEmbedding"))
    return Selection{2, 3, 1};
  if (node.is("com.microsoft::GroupQueryAttention"))
    return Selection{7, 8, 5};
  if (node.is("Gather") || node.is("GatherElements") || node.is("GatherND") || node.is("Slice"))
    return Selection{};
  return std::nullopt;
}

/// Whether a value only arranges or converts token ids.
bool isOfTokens(const ir::Value& value) {
  const ir::Value* from = &value;
  constexpr unsigned longest = 16;
  for (unsigned i = 0; i < longest && from->producer(); ++i) {
    const ir::Node& node = *from->producer();
    if (node.operands().empty() || !node.operand(0))
      return false;
    from = node.operand(0);
  }
  const ir::DocumentedInput* known = from->isGraphInput() ? ir::documentedInput(*from) : nullptr;
  return known && known->feed == ir::InputFeed::Tokens;
}

void addTables(const ir::Node& node, std::vector<SelectedTable>& tables) {
  const auto selection = selectionOf(node);
  for (unsigned i = selection ? selection->firstTable : 1;
       selection && i <= selection->lastTable && i < node.operands().size(); ++i) {
    const auto data = node.operand(i) ? node.operand(i)->constantRef() : nullptr;
    const bool varies = llvm::any_of(
        node.operands().drop_front(std::min<size_t>(selection->selector, node.operands().size())),
        [](const ir::Use& use) { return use.value() && !use.value()->constantRef(); });
    if (!data || !varies || data->shape().empty() ||
        llvm::any_of(tables, [&](const SelectedTable& known) { return known.data == data; }))
      continue;
    const auto rank = static_cast<int64_t>(data->shape().size());
    const int64_t axis = node.is("Gather") ? node.intAttr("axis", 0) : 0;
    if (axis < -rank || axis >= rank)
      continue;
    const ir::Value* selector =
        selection->selector < node.operands().size() ? node.operand(selection->selector) : nullptr;
    tables.push_back({node.operand(i)->name().str(), &node, i,
                      static_cast<unsigned>(axis < 0 ? axis + rank : axis),
                      selector && isOfTokens(*selector), data});
  }
}

void addTables(const ir::Graph& graph, std::vector<SelectedTable>& tables) {
  for (const ir::Node& node : graph.nodes()) {
    addTables(node, tables);
    for (const ir::Graph* inner : node.subgraphs())
      addTables(*inner, tables);
  }
}

bool areAlike(const SelectedTable& a, const SelectedTable& b) {
  return a.data->elementType() == b.data->elementType() && a.data->shape() == b.data->shape() &&
         a.axis == b.axis && a.operand == b.operand && a.reader->op() == b.reader->op();
}

/// Elements as numbers; nullopt if they are of another type or very many.
std::optional<std::vector<double>> numbersOf(const ir::TensorData& data) {
  constexpr int64_t most = int64_t(1) << 27;
  if (const auto numbers = ir::floatValues(data, most))
    return std::vector<double>(numbers->begin(), numbers->end());
  if (const auto integers = ir::integerValues(data, most))
    return std::vector<double>(integers->begin(), integers->end());
  return std::nullopt;
}

} // namespace

std::vector<SelectedTable> selectedTables(const ir::Model& model) {
  std::vector<SelectedTable> tables;
  addTables(model.graph(), tables);
  for (const auto& function : model.functions)
    addTables(function->body, tables);
  return tables;
}

bool haveSameContents(const ir::TensorData& a, const ir::TensorData& b) {
  if (&a == &b)
    return true;
  if (a.elementType() != b.elementType() || a.shape() != b.shape())
    return false;
  const auto placeA = ir::filePlaceOf(a), placeB = ir::filePlaceOf(b);
  if (placeA && placeB && placeA->file.device == placeB->file.device &&
      placeA->file.inode == placeB->file.inode && placeA->offset == placeB->offset)
    return true;
  auto bytesA = a.bytes(), bytesB = b.bytes();
  if (!bytesA || !bytesB) {
    llvm::consumeError(bytesA.takeError());
    llvm::consumeError(bytesB.takeError());
    return false;
  }
  return std::equal(bytesA->begin(), bytesA->end(), bytesB->begin(), bytesB->end());
}

std::vector<OtherContents> tablesOfOtherContents(const ir::Model& before, const ir::Model& after) {
  const std::vector<SelectedTable> first = selectedTables(before), second = selectedTables(after);
  auto without = [](const std::vector<SelectedTable>& tables,
                    const std::vector<SelectedTable>& others) {
    std::vector<SelectedTable> rest;
    for (const SelectedTable& table : tables)
      if (llvm::none_of(others, [&](const SelectedTable& other) {
            return haveSameContents(*table.data, *other.data);
          }))
        rest.push_back(table);
    return rest;
  };
  std::vector<SelectedTable> onlyBefore = without(first, second),
                             onlyAfter = without(second, first);
  std::vector<OtherContents> pairs;
  for (const SelectedTable& table : onlyAfter) {
    auto likely = [&](const SelectedTable& other) { return areAlike(table, other); };
    auto twin = llvm::find_if(onlyBefore, [&](const SelectedTable& other) {
      return likely(other) && other.name == table.name;
    });
    if (twin == onlyBefore.end() &&
        llvm::count_if(onlyBefore, likely) ==
            llvm::count_if(onlyAfter, [&](const SelectedTable& other) {
              return areAlike(table, other) && llvm::none_of(pairs, [&](const OtherContents& pair) {
                       return pair.after.data == other.data;
                     });
            }))
      twin = llvm::find_if(onlyBefore, likely);
    if (twin == onlyBefore.end())
      continue;
    pairs.push_back({*twin, table});
    onlyBefore.erase(twin);
  }
  return pairs;
}

std::optional<RowDifferences> rowDifferences(const OtherContents& tables, double tolerance) {
  const auto a = numbersOf(*tables.before.data), b = numbersOf(*tables.after.data);
  if (!a || !b || a->size() != b->size())
    return std::nullopt;
  const llvm::ArrayRef<int64_t> shape = tables.after.data->shape();
  size_t inner = 1;
  for (size_t i = tables.after.axis + 1; i < shape.size(); ++i)
    inner *= static_cast<size_t>(shape[i]);
  const auto rows = static_cast<size_t>(tables.after.rows());
  std::vector<bool> differs(rows), hasNumbers(rows);
  for (size_t i = 0; i < a->size(); ++i) {
    const double x = (*a)[i], y = (*b)[i];
    const bool areBoth = x == y || (std::isnan(x) && std::isnan(y));
    const size_t row = i / inner % rows;
    hasNumbers[row] = hasNumbers[row] || x != 0;
    if (!areBoth && !(std::abs(x - y) <= tolerance * std::max(1.0, std::abs(x))))
      differs[row] = true;
  }
  RowDifferences found;
  for (size_t row = 0; row < rows; ++row) {
    if (differs[row])
      found.rows.push_back(static_cast<int64_t>(row));
    found.isAnyEqual |= !differs[row] && hasNumbers[row];
  }
  return found;
}

} // namespace kvopt::check
