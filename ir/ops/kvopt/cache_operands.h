// Places of operands and results of ai.kvopt's attention operators over caches, and the operators'
// names. The header includes nothing, so that engines without a graph read it, too.
#pragma once

namespace kvopt::ir {

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

/// Operands and results by role. Side 0 is keys or latent rows, side 1 is values. `Form` has the
/// members place, sharing and hasCodes().
template <class Form> struct CacheOperands {
  constexpr bool isLatent() const { return form().sharing == CacheSharing::Latent; }
  constexpr bool isRing() const { return form().place == CachePlace::Ring; }
  constexpr bool isInBlocks() const { return form().place == CachePlace::Blocks; }

  /// Number of caches.
  constexpr unsigned sides() const { return isLatent() ? 1 : 2; }
  /// Number of tensors of each cache: its rows and, for codes, their scales.
  constexpr unsigned parts() const { return form().hasCodes() ? 2 : 1; }

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
  constexpr unsigned firstBlock() const { return sinks() + 1 + (form().hasCodes() ? sides() : 0); }
  /// In blocks: number of lists of blocks.
  constexpr unsigned blockLists() const { return sides() * parts(); }
  /// First block of a side. `each` is the number of blocks per list.
  constexpr unsigned block(unsigned side, unsigned each) const {
    return firstBlock() + side * each;
  }
  constexpr unsigned scaleBlock(unsigned side, unsigned each) const {
    return firstBlock() + (sides() + side) * each;
  }

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

private:
  constexpr const Form& form() const { return static_cast<const Form&>(*this); }
};

/// An operator without the format of its codes.
struct CacheOperatorForm : CacheOperands<CacheOperatorForm> {
  CachePlace place;
  bool isOfCodes;
  CacheSharing sharing;
  const char* name; ///< with the domain

  constexpr CacheOperatorForm(CachePlace ofRows, bool withCodes, CacheSharing ofCaches,
                              const char* fullName)
      : place(ofRows), isOfCodes(withCodes), sharing(ofCaches), name(fullName) {}
  constexpr bool hasCodes() const { return isOfCodes; }
};

/// Every operator.
inline constexpr CacheOperatorForm cacheOperatorForms[] = {
    {CachePlace::Buffer, false, CacheSharing::KeysAndValues, "ai.kvopt::InPlaceKvSdpa"},
    {CachePlace::Buffer, true, CacheSharing::KeysAndValues, "ai.kvopt::InPlaceQuantizedKvSdpa"},
    {CachePlace::Buffer, false, CacheSharing::Latent, "ai.kvopt::InPlaceLatentKvSdpa"},
    {CachePlace::Buffer, true, CacheSharing::Latent, "ai.kvopt::InPlaceQuantizedLatentKvSdpa"},
    {CachePlace::Ring, false, CacheSharing::KeysAndValues, "ai.kvopt::RingKvSdpa"},
    {CachePlace::Ring, true, CacheSharing::KeysAndValues, "ai.kvopt::RingQuantizedKvSdpa"},
    {CachePlace::Ring, false, CacheSharing::Latent, "ai.kvopt::RingLatentKvSdpa"},
    {CachePlace::Ring, true, CacheSharing::Latent, "ai.kvopt::RingQuantizedLatentKvSdpa"},
    {CachePlace::Blocks, false, CacheSharing::KeysAndValues, "ai.kvopt::BlockKvSdpa"},
    {CachePlace::Blocks, true, CacheSharing::KeysAndValues, "ai.kvopt::BlockQuantizedKvSdpa"},
    {CachePlace::Blocks, false, CacheSharing::Latent, "ai.kvopt::BlockLatentKvSdpa"},
    {CachePlace::Blocks, true, CacheSharing::Latent, "ai.kvopt::BlockQuantizedLatentKvSdpa"},
};

} // namespace kvopt::ir
