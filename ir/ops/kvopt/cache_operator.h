// CacheOperator: ai.kvopt's attention operators over caches, as a product of three axes.
//
// The place of the rows, their storage, and whether keys and values share them determine an
// operator's name, operands, results, attributes, shape rule, function body and kernel. Only
// cache_operands.h lists them.
#pragma once

#include "ir/op_name.h"
#include "ir/ops/kvopt/cache_operands.h"
#include "ir/rows/row_code.h"

#include "llvm/ADT/ArrayRef.h"

#include <optional>

namespace kvopt::ir {

class Node;

struct CacheOperator : CacheOperands<CacheOperator> {
  CachePlace place = CachePlace::Buffer;
  /// Format of rows of codes; null if rows are numbers of the new rows' element type.
  const RowCode* code = nullptr;
  CacheSharing sharing = CacheSharing::KeysAndValues;

  constexpr CacheOperator() = default;
  constexpr CacheOperator(CachePlace ofRows, const RowCode* ofCodes, CacheSharing ofCaches)
      : place(ofRows), code(ofCodes), sharing(ofCaches) {}

  /// The operator of the node. nullopt for other operators, and for a node without a definition,
  /// because its operands were not checked. The element type of the first past identifies the codes
  /// of rows; int8Rows if it is unknown.
  static std::optional<CacheOperator> of(const Node& node);
  /// The operator with that name; codes are int8Rows, because all codes share the name.
  static std::optional<CacheOperator> named(OpName op);
  /// One operator for each name; codes are int8Rows.
  static llvm::ArrayRef<CacheOperator> all();

  /// The operator's name, a static string.
  OpName name() const;

  constexpr bool hasCodes() const { return code != nullptr; }
  /// The same operator over numbers.
  CacheOperator unquantized() const { return {place, nullptr, sharing}; }

  constexpr bool operator==(const CacheOperator& other) const {
    return place == other.place && code == other.code && sharing == other.sharing;
  }
};

} // namespace kvopt::ir
