// Arithmetic and movements of columns.
#include "passes/analysis/rotation/column_forms.h"

#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr int64_t mostFormColumns = 1024;
constexpr size_t mostProducts = 4;
constexpr unsigned deepestColumn = 64;

int64_t countOf(llvm::ArrayRef<int64_t> extents) {
  int64_t product = 1;
  for (int64_t extent : extents)
    product *= extent;
  return product;
}

/// Sorts the products and drops those that cancel.
ColumnForm inOrder(ColumnForm form) {
  for (ColumnForm::Product& product : form.products)
    llvm::sort(product.atoms);
  llvm::sort(form.products);
  for (size_t i = 0; i + 1 < form.products.size();) {
    const ColumnForm::Product& next = form.products[i + 1];
    if (form.products[i].atoms == next.atoms && form.products[i].sign == -next.sign)
      form.products.erase(form.products.begin() + static_cast<ptrdiff_t>(i),
                          form.products.begin() + static_cast<ptrdiff_t>(i) + 2);
    else
      ++i;
  }
  return form;
}

ColumnForm negative(ColumnForm form) {
  for (ColumnForm::Product& product : form.products)
    product.sign = -product.sign;
  return inOrder(std::move(form));
}

ColumnForm sumOf(const ColumnForm& a, const ColumnForm& b) {
  ColumnForm sum = a;
  sum.products.insert(sum.products.end(), b.products.begin(), b.products.end());
  return inOrder(std::move(sum));
}

ColumnForm productOf(const ColumnForm& a, const ColumnForm& b) {
  ColumnForm result;
  for (const ColumnForm::Product& left : a.products)
    for (const ColumnForm::Product& right : b.products) {
      ColumnForm::Product product = left;
      product.sign *= right.sign;
      product.atoms.insert(product.atoms.end(), right.atoms.begin(), right.atoms.end());
      result.products.push_back(std::move(product));
    }
  return inOrder(std::move(result));
}

/// Whether all axes but `tail` and `otherTail` last ones have provably equal extents.
bool haveSameLead(const Value& value, unsigned tail, const Value& other, unsigned otherTail) {
  const TensorType& a = value.type();
  const TensorType& b = other.type();
  if (!a.hasRank() || !b.hasRank() || a.rank() < tail || b.rank() < otherTail ||
      a.rank() - tail != b.rank() - otherTail)
    return false;
  for (unsigned axis = 0; axis + tail < a.rank(); ++axis)
    if (!a.dim(axis).isKnownEqual(b.dim(axis)))
      return false;
  return true;
}

ColumnForm atomForm(unsigned atom) {
  ColumnForm form;
  form.products.push_back({{atom}, 1});
  return form;
}

bool isConversion(const Node& node, const Value& data) {
  return node.result().type().elementType() != data.type().elementType();
}

} // namespace

std::optional<ColumnForms::Extents> ColumnForms::tailOf(const Value& value, unsigned tail) {
  const TensorType& type = value.type();
  if (!type.hasRank())
    return std::nullopt;
  Extents extents;
  int64_t count = 1;
  for (unsigned i = 0; i < tail; ++i) {
    // Missing axes broadcast.
    const bool isMissing = type.rank() + i < tail;
    const auto extent =
        isMissing ? std::optional<int64_t>(1) : type.dim(type.rank() + i - tail).value();
    if (!extent || *extent < 1 || *extent > mostFormColumns || (count *= *extent) > mostFormColumns)
      return std::nullopt;
    extents.push_back(*extent);
  }
  return extents;
}

ColumnForms::Made ColumnForms::of(const Value& value, unsigned tail) {
  const std::pair key(&value, tail);
  if (const auto found = known.find(key); found != known.end())
    return found->second;
  const auto extents = tailOf(value, tail);
  Made made;
  if (extents && depth < deepestColumn) {
    ++depth;
    made = compute(value, tail, *extents);
    --depth;
    if (!made)
      made = columnsOf(value, *extents);
  }
  known[key] = made;
  if (made && tail == 1)
    visited.push_back(&value);
  return made;
}

/// Null if the columns are not computed from others.
ColumnForms::Made ColumnForms::compute(const Value& value, unsigned tail, const Extents& extents) {
  const Node* node = value.producer();
  if (!node || &value == stop || value.constant() || !node->op().isOnnx() ||
      &node->graph() != &value.graph())
    return nullptr;
  Made made;
  if (const auto movement = movementOf(value))
    made = moved(value, *movement, tail, extents);
  else
    made = computed(*node, tail, extents);
  const bool isWhole = made && static_cast<int64_t>(made->size()) == countOf(extents);
  const bool isShort = made && llvm::all_of(*made, [](const ColumnForm& form) {
                         return form.products.size() <= mostProducts;
                       });
  return isWhole && isShort ? made : nullptr;
}

ColumnForms::Made ColumnForms::computed(const Node& node, unsigned tail, const Extents& extents) {
  const llvm::StringRef type = node.op().type();
  const bool isProduct = type == "Mul";
  if (node.operands().size() == 1 && (type == "Neg" || type == "Cos" || type == "Sin")) {
    const Made operand = of(*node.operand(0), tail);
    if (!operand)
      return nullptr;
    auto made = std::make_shared<Columns>();
    for (const ColumnForm& form : *operand)
      made->push_back(type == "Neg" ? negative(form) : function(type.str(), form));
    return made;
  }
  if (!isProduct && type != "Add" && type != "Sub")
    return nullptr;
  const Value& left = *node.operand(0);
  const Value& right = *node.operand(1);
  const Made a = of(left, tail);
  const Made b = of(right, tail);
  const auto leftTail = tailOf(left, tail);
  const auto rightTail = tailOf(right, tail);
  if (!a || !b || !leftTail || !rightTail)
    return nullptr;
  auto made = std::make_shared<Columns>();
  for (int64_t column = 0; column < countOf(extents); ++column) {
    // The same place in both operands, or 0 along an axis of extent 1.
    size_t places[2] = {0, 0};
    int64_t rest = column;
    int64_t strides[2] = {1, 1};
    for (unsigned i = tail; i-- > 0;) {
      const int64_t place = rest % extents[i];
      rest /= extents[i];
      for (unsigned side = 0; side < 2; ++side) {
        const int64_t extent = (side == 0 ? *leftTail : *rightTail)[i];
        places[side] += static_cast<size_t>(extent == 1 ? 0 : place * strides[side]);
        strides[side] *= extent;
      }
    }
    if (places[0] >= a->size() || places[1] >= b->size())
      return nullptr;
    const ColumnForm& x = (*a)[places[0]];
    const ColumnForm& y = (*b)[places[1]];
    if (x.products.size() * y.products.size() > mostProducts)
      return nullptr;
    made->push_back(isProduct       ? productOf(x, y)
                    : type == "Add" ? sumOf(x, y)
                                    : sumOf(x, negative(y)));
  }
  return made;
}

ColumnForms::Made ColumnForms::moved(const Value& value, const Movement& movement, unsigned tail,
                                     const Extents& extents) {
  const Node& node = *value.producer();
  const Value& data = *node.operand(movement.data);
  const TensorType& from = data.type();
  const TensorType& to = value.type();
  if (!from.hasRank() || !to.hasRank() || to.rank() < tail)
    return nullptr;
  const unsigned lead = to.rank() - tail;
  switch (movement.kind) {
  case MovementKind::Same:
    return of(data, tail);
  case MovementKind::Convert: {
    if (!isConversion(node, data))
      return of(data, tail);
    return viewed(data, tail, formatted("to {}", static_cast<int>(to.elementType())));
  }
  case MovementKind::Concat:
    return movement.axis() && *movement.axis() >= lead
               ? joined(node, *movement.axis() - lead, tail, extents)
               : nullptr;
  case MovementKind::Slice:
    return from.rank() == to.rank() ? picked(data, tail, movement, extents) : nullptr;
  case MovementKind::Reshape:
    for (unsigned other : {tail, tail + 1, tail - 1})
      if (other > 0 && haveSameLead(value, tail, data, other))
        return of(data, other);
    return nullptr;
  case MovementKind::InsertAxes: {
    if (!movement.axes)
      return nullptr;
    const auto inTail = static_cast<unsigned>(
        llvm::count_if(*movement.axes, [&](unsigned axis) { return axis >= lead; }));
    if (inTail == movement.axes->size() && inTail < tail)
      return of(data, tail - inTail);
    if (inTail != 0)
      return nullptr;
    std::string how = "insert";
    for (unsigned axis : *movement.axes)
      how += formatted(" {}", static_cast<int>(axis) - static_cast<int>(to.rank()));
    return viewed(data, tail, how);
  }
  case MovementKind::Permutation: {
    if (!movement.axes)
      return nullptr;
    std::string how = "permute";
    for (unsigned axis = 0; axis < to.rank(); ++axis) {
      if (axis >= lead && (*movement.axes)[axis] != axis)
        return nullptr;
      how += formatted(" {}", (*movement.axes)[axis]);
    }
    return viewed(data, tail, how);
  }
  case MovementKind::Broadcast: {
    const auto before = tailOf(data, tail);
    if (!before)
      return nullptr;
    if (*before == extents)
      return of(data, tail)
                 ? viewed(data, tail,
                          formatted("expand {}", static_cast<const void*>(node.operand(1))))
                 : nullptr;
    if (!haveSameLead(value, tail, data, tail))
      return nullptr;
    const Made operand = of(data, tail);
    if (!operand)
      return nullptr;
    auto made = std::make_shared<Columns>();
    for (int64_t column = 0; column < countOf(extents); ++column) {
      int64_t rest = column;
      int64_t stride = 1;
      int64_t place = 0;
      for (unsigned i = tail; i-- > 0;) {
        place += (*before)[i] == 1 ? 0 : rest % extents[i] * stride;
        rest /= extents[i];
        stride *= (*before)[i];
      }
      made->push_back((*operand)[static_cast<size_t>(place)]);
    }
    return made;
  }
  case MovementKind::Gather: {
    // Rows of a table: all columns of the row at an index.
    const auto axis = movement.axis();
    const Value* indices = node.operand(movement.indices);
    if (!axis || !indices || tail != 1 || *axis + 1 >= from.rank())
      return nullptr;
    return viewed(data, tail, formatted("gather {} {}", *axis, static_cast<const void*>(indices)));
  }
  case MovementKind::RemoveAxes:
  case MovementKind::Repeat:
  case MovementKind::PointGather:
    return nullptr;
  }
  return nullptr;
}

/// A range of each axis of the tail.
ColumnForms::Made ColumnForms::picked(const Value& data, unsigned tail, const Movement& movement,
                                      const Extents& extents) {
  const auto before = tailOf(data, tail);
  const Made operand = before ? of(data, tail) : nullptr;
  if (!operand || !movement.axes || movement.axes->size() != movement.ranges.size())
    return nullptr;
  const unsigned lead = data.type().rank() - tail;
  Extents starts(tail, 0);
  Extents steps(tail, 1);
  for (size_t i = 0; i < movement.ranges.size(); ++i) {
    const unsigned axis = (*movement.axes)[i];
    const auto start = movement.ranges[i].start.known.value();
    const auto step = movement.ranges[i].step.known.value();
    if (axis < lead || !start || !step || *start < 0)
      return nullptr;
    starts[axis - lead] = *start;
    steps[axis - lead] = *step;
  }
  auto made = std::make_shared<Columns>();
  for (int64_t column = 0; column < countOf(extents); ++column) {
    int64_t rest = column;
    int64_t stride = 1;
    int64_t place = 0;
    for (unsigned i = tail; i-- > 0;) {
      const int64_t at = starts[i] + rest % extents[i] * steps[i];
      if (at < 0 || at >= (*before)[i])
        return nullptr;
      place += at * stride;
      rest /= extents[i];
      stride *= (*before)[i];
    }
    made->push_back((*operand)[static_cast<size_t>(place)]);
  }
  return made;
}

ColumnForms::Made ColumnForms::joined(const Node& node, unsigned axis, unsigned tail,
                                      const Extents& extents) {
  const int64_t inner = countOf(llvm::ArrayRef<int64_t>(extents).drop_front(axis + 1));
  const int64_t outer = countOf(llvm::ArrayRef<int64_t>(extents).take_front(axis));
  struct Part {
    Made columns;
    int64_t run;
  };
  llvm::SmallVector<Part, 4> parts;
  for (const Use& use : node.operands()) {
    const TensorType* type = use.value() ? &use.value()->type() : nullptr;
    if (type && type->hasRank() && type->rank() == node.result().type().rank() &&
        type->dim(type->rank() - tail + axis).value() == 0)
      continue; // without columns
    const auto part = use.value() ? tailOf(*use.value(), tail) : std::nullopt;
    const Made columns = part ? of(*use.value(), tail) : nullptr;
    if (!columns || use.value()->type().rank() != node.result().type().rank())
      return nullptr;
    parts.push_back({columns, (*part)[axis] * inner});
  }
  auto made = std::make_shared<Columns>();
  for (int64_t row = 0; row < outer; ++row)
    for (const Part& part : parts)
      for (int64_t i = 0; i < part.run; ++i) {
        const auto place = static_cast<size_t>(row * part.run + i);
        if (place >= part.columns->size())
          return nullptr;
        made->push_back((*part.columns)[place]);
      }
  return made;
}

/// The columns of a value whose other axes are moved, named by the movement.
ColumnForms::Made ColumnForms::viewed(const Value& data, unsigned tail, const std::string& how) {
  if (!data.type().hasRank() || data.type().rank() < tail)
    return nullptr;
  const Made operand = of(data, tail);
  if (!operand)
    return nullptr;
  auto made = std::make_shared<Columns>();
  for (const ColumnForm& form : *operand)
    made->push_back(function(formatted("{} of rank {}", how, data.type().rank()), form));
  return made;
}

/// The columns of a value that nothing is known about. Equal columns of a table are one.
ColumnForms::Made ColumnForms::columnsOf(const Value& value, const Extents& extents) {
  constexpr int64_t mostNumbers = int64_t{1} << 22;
  const int64_t columns = countOf(extents);
  std::vector<int64_t> first(static_cast<size_t>(columns));
  for (size_t i = 0; i < first.size(); ++i)
    first[i] = static_cast<int64_t>(i);
  const TensorData* table = value.constant();
  const auto numbersOfTable =
      table && columns > 1 && table->elementCount() > 0 && table->elementCount() % columns == 0
          ? floatValues(*table, mostNumbers)
          : std::nullopt;
  if (numbersOfTable && llvm::none_of(*numbersOfTable, [](double x) { return std::isnan(x); })) {
    std::map<std::vector<double>, int64_t> seen;
    for (int64_t column = 0; column < columns; ++column) {
      std::vector<double> entries;
      for (int64_t i = column; i < table->elementCount(); i += columns)
        entries.push_back((*numbersOfTable)[static_cast<size_t>(i)]);
      first[static_cast<size_t>(column)] =
          seen.try_emplace(std::move(entries), column).first->second;
    }
  }
  auto made = std::make_shared<Columns>();
  for (int64_t column : first)
    made->push_back(atomForm(columnAtoms.try_emplace({&value, column}, atoms++).first->second));
  return made;
}

ColumnForm ColumnForms::function(const std::string& name, const ColumnForm& argument) {
  return atomForm(functionAtoms.try_emplace({name, argument}, atoms++).first->second);
}

} // namespace kvopt::analysis
