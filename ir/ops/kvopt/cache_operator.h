// CacheOperator: ai.kvopt's attention operators over caches, as a product of three axes.
//
// The place of the rows, their storage, and whether keys and values share them determine an
// operator's name, operands, results, attributes, shape rule, function body and kernel. Only this
// file and the one that defines the operators (cache_operators.cc) list them.
#pragma once

#include "ir/op_name.h"
#include "ir/rows/row_code.h"

#include "llvm/ADT/ArrayRef.h"

#include <optional>

namespace kvopt::ir {

class Node;

/// Place where the rows of a cache are stored.
enum class CachePlace {
  Buffer, ///< one tensor with room for a capacity of rows, in the order of their positions
  Ring,   ///< one tensor of C slots: the row of position p is in slot p mod C
  Blocks, ///< separate tensors, in order; new rows are returned, not written
};

/// Caches of an attention.
enum class CacheSharing {
  KeysAndValues, ///< one of keys and one of values
  Latent,        ///< a single one, whose rows are keys; some of their columns are the values
};

struct CacheOperator {
  CachePlace place = CachePlace::Buffer;
  /// Format of rows of codes; null if rows are numbers of the new rows' element type.
  const RowCode* code = nullptr;
  CacheSharing sharing = CacheSharing::KeysAndValues;

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
  constexpr bool isLatent() const { return sharing == CacheSharing::Latent; }
  constexpr bool isRing() const { return place == CachePlace::Ring; }
  constexpr bool isInBlocks() const { return place == CachePlace::Blocks; }
  /// The same operator over numbers.
  CacheOperator unquantized() const { return {place, nullptr, sharing}; }

  // Operands by role. Side 0 is keys or latent rows, side 1 is values.

  /// Number of caches.
  constexpr unsigned sides() const { return isLatent() ? 1 : 2; }
  /// Number of tensors of each cache: its rows and, for codes, their scales.
  constexpr unsigned parts() const { return hasCodes() ? 2 : 1; }

  static constexpr unsigned query = 0;
  /// New rows [B,G,S,W]; in blocks of codes they are codes, too.
  static constexpr unsigned fresh(unsigned side) { return 1 + side; }
  /// For buffers and rings: previously cached rows. Their scales follow.
  constexpr unsigned past(unsigned side) const { return 1 + sides() + side * parts(); }
  constexpr unsigned pastScale(unsigned side) const { return past(side) + 1; }
  /// For buffers and rings: number of previously cached rows, int64 [1] or [B].
  constexpr unsigned pastLength() const { return 1 + sides() * (1 + parts()); }
  constexpr unsigned mask() const { return isInBlocks() ? 1 + sides() : pastLength() + 1; }
  constexpr unsigned sinks() const { return mask() + 1; }
  /// In blocks of codes: scales of the new rows.
  constexpr unsigned freshScale(unsigned side) const { return sinks() + 1 + side; }
  /// In blocks: the first block. The blocks of the keys come first, then those of the values, of
  /// the keys' scales, and of the values' scales.
  constexpr unsigned firstBlock() const { return sinks() + 1 + (hasCodes() ? sides() : 0); }
  /// In blocks: number of lists of blocks.
  constexpr unsigned blockLists() const { return sides() * parts(); }
  /// First block of a side. `each` is the number of blocks per list.
  constexpr unsigned block(unsigned side, unsigned each) const {
    return firstBlock() + side * each;
  }
  constexpr unsigned scaleBlock(unsigned side, unsigned each) const {
    return firstBlock() + (sides() + side) * each;
  }

  // Results by role.

  static constexpr unsigned output = 0;
  /// For buffers and rings: the past after the update. Its scales follow.
  constexpr unsigned present(unsigned side) const { return 1 + side * parts(); }
  constexpr unsigned presentScale(unsigned side) const { return present(side) + 1; }
  constexpr unsigned resultCount() const { return isInBlocks() ? 1 : 1 + sides() * parts(); }

  /// Name of the attribute with the sequence axis of a side's cache.
  static constexpr const char* axisName(unsigned side) {
    return side == 0 ? "key_axis" : "value_axis";
  }
  /// "key" or "value", as in the names of operands.
  static constexpr const char* sideName(unsigned side) { return side == 0 ? "key" : "value"; }

  constexpr bool operator==(const CacheOperator& other) const {
    return place == other.place && code == other.code && sharing == other.sharing;
  }
};

} // namespace kvopt::ir
