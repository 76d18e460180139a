// ColumnForms: columns of values as polynomials in columns of earlier values.
#pragma once

#include "ir/movement.h"
#include "ir/node.h"

#include "llvm/ADT/DenseMap.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace kvopt::analysis {

/// A sum of signed products of atoms. An atom is a column of a value that is not computed from
/// others, or a function of another column. Equal atoms have equal numbers.
struct ColumnForm {
  struct Product {
    std::vector<unsigned> atoms; ///< in ascending order
    int sign = 1;
    auto operator<=>(const Product&) const = default;
  };
  std::vector<Product> products; ///< in ascending order
  auto operator<=>(const ColumnForm&) const = default;
};

/// Computes columns. The last axes of a value, its tail, count as columns in row-major order. All
/// other axes are aligned at the right, as in broadcasting, and every step keeps them; a step that
/// moves them makes its columns functions of the operand's.
class ColumnForms {
public:
  using Columns = std::vector<ColumnForm>;

  /// `leaf`, if it is not null, counts as a value that is not computed from others.
  explicit ColumnForms(const ir::Value* leaf = nullptr) : stop(leaf) {}

  /// The columns of `tail` axes; null if their number is unknown or too large.
  std::shared_ptr<const Columns> of(const ir::Value& value, unsigned tail = 1);

  /// The values whose columns were computed with a tail of one axis, each once.
  llvm::ArrayRef<const ir::Value*> values() const { return visited; }

private:
  using Made = std::shared_ptr<const Columns>;
  using Extents = llvm::SmallVector<int64_t, 2>;

  static std::optional<Extents> tailOf(const ir::Value& value, unsigned tail);
  Made compute(const ir::Value& value, unsigned tail, const Extents& extents);
  Made computed(const ir::Node& node, unsigned tail, const Extents& extents);
  Made moved(const ir::Value& value, const ir::Movement& movement, unsigned tail,
             const Extents& extents);
  Made picked(const ir::Value& data, unsigned tail, const ir::Movement& movement,
              const Extents& extents);
  Made joined(const ir::Node& node, unsigned axis, unsigned tail, const Extents& extents);
  Made viewed(const ir::Value& data, unsigned tail, const std::string& how);
  Made columnsOf(const ir::Value& value, const Extents& extents);

  ColumnForm function(const std::string& name, const ColumnForm& argument);

  const ir::Value* stop;
  std::map<std::pair<const ir::Value*, unsigned>, Made> known;
  std::map<std::pair<const ir::Value*, int64_t>, unsigned> columnAtoms;
  std::map<std::pair<std::string, ColumnForm>, unsigned> functionAtoms;
  unsigned atoms = 0;
  std::vector<const ir::Value*> visited;
  unsigned depth = 0;
};

} // namespace kvopt::analysis
