// Derives the values that drivers feed from the readers of inputs.
#include "passes/analysis/interface/input_roles.h"

#include "ir/manifest/documented_inputs.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

bool isTokenName(const Value& input) {
  const DocumentedInput* documented = documentedInput(input);
  return documented && documented->feed == InputFeed::Tokens;
}

/// Maximum number of rows of a table of segment embeddings; larger tables are for tokens or
/// positions.
constexpr int64_t mostSegments = 4;

class Roles {
public:
  Roles(const Graph& described, const InterfaceFacts& read, Manifest& target)
      : graph(described), facts(read), manifest(target) {
    for (const ManifestCache& cache : manifest.caches) {
      known.insert(cache.past);
      const ManifestExtent& rows = cache.shape[static_cast<size_t>(cache.sequenceAxis)];
      if (const auto* symbol = std::get_if<std::string>(&rows);
          symbol && cache.update() == CacheUpdate::Grows) {
        past = Dim::parse(*symbol).value_or(Dim::symbol(*symbol));
        noteAppended(cache);
      }
    }
    for (const ManifestLength& length : manifest.lengths)
      known.insert(length.input);
    for (const std::unique_ptr<Value>& input : graph.inputs())
      if (!known.contains(input->name()) && !input->isInitializer()) {
        open.push_back(input.get());
        noteLaterSymbols(input->type());
      }
  }

  void describe() {
    findTokens();
    for (const Value* input : open)
      if (!isDescribed(*input) && !takeGiven(*input))
        describe(*input);
  }

private:
  /// Notes symbols that cannot count batch rows: an input has them after its first axis.
  void noteLaterSymbols(const TensorType& type) {
    for (size_t axis = 1; type.hasRank() && axis < type.rank(); ++axis)
      for (const std::string& symbol : type.shape()[axis].symbols())
        laterSymbols.insert(symbol);
  }

  bool isDescribed(const Value& input) const {
    return llvm::any_of(manifest.inputs, [&](const ManifestInput& described) {
      return described.input == input.name();
    });
  }

  bool isGivenAsTokens(const Value& input) const {
    return llvm::any_of(facts.given.inputs, [&](const ManifestInput& given) {
      return given.input == input.name() && given.feed == InputFeed::Tokens;
    });
  }

  /// Whether the role of an input is given, and takes it over.
  bool takeGiven(const Value& input) {
    for (const ManifestLength& length : facts.given.lengths)
      if (length.input == input.name()) {
        manifest.lengths.push_back(length);
        return true;
      }
    for (const ManifestInput& given : facts.given.inputs)
      if (given.input == input.name()) {
        ManifestInput role = given;
        const unsigned rank = input.type().hasRank() ? input.type().rank() : 0;
        for (unsigned axis = 0; given.shape.empty() && axis < rank; ++axis)
          role.shape.push_back(extentOf(input.type(), axis, role.feed));
        manifest.inputs.push_back(std::move(role));
        return true;
      }
    return false;
  }

  /// Records the number of rows that a step appends to a growing cache.
  void noteAppended(const ManifestCache& cache) {
    for (const Value* output : graph.outputs())
      if (output->name() == cache.present && output->type().hasRank() &&
          cache.sequenceAxis < static_cast<int64_t>(output->type().rank()))
        appended = output->type().dim(cache.sequenceAxis) - past;
  }

  /// Whether an input holds embedded tokens [B,S,W], one for each row that is appended to caches.
  bool isEmbedded(const Value& input) const {
    const TensorType& type = input.type();
    return isFloatingPoint(type.elementType()) && type.hasRank() && type.rank() == 3 &&
           !type.dim(1).value() && type.dim(1).isKnownEqual(appended);
  }

  /// Finds token ids by their name, or otherwise by the table that they index, and the names of
  /// their extents.
  void findTokens() {
    for (const Value* input : open)
      if (isTokenName(*input) || isGivenAsTokens(*input))
        tokens = input;
    const Dim scores = scoresExtent();
    int64_t largest = -1;
    bool isLargestExact = false;
    for (const Value* input : open) {
      if (tokens && (isTokenName(*tokens) || isGivenAsTokens(*tokens)))
        break;
      if (!isInteger(input->type().elementType()) || documentedInput(*input))
        continue;
      for (const InputReaders::Table& table : facts.of(*input).tables) {
        const bool isExact = scores.value() && scores.value() == table.rows;
        if (isExact < isLargestExact || (isExact == isLargestExact && table.elements <= largest))
          continue;
        largest = table.elements;
        isLargestExact = isExact;
        tokens = input;
      }
    }
    const Value* sized = tokens;
    for (const Value* input : open)
      if (!sized && (input->name() == "inputs_embeds" || isEmbedded(*input)))
        sized = embeddings = input;
    if (!sized || !sized->type().hasRank() || sized->type().rank() < 2)
      return;
    batch = sized->type().shape()[0];
    fresh = sized->type().shape()[1];
  }

  /// The extent of the last axis of the only floating-point output [B,S,V] that is not a cache.
  Dim scoresExtent() const {
    for (const Value* output : graph.outputs()) {
      auto isPresent = [&](const ManifestCache& cache) { return cache.present == output->name(); };
      if (output->type().hasRank() && output->type().rank() == 3 &&
          isFloatingPoint(output->type().elementType()) &&
          llvm::none_of(manifest.caches, isPresent))
        return output->type().dim(2);
    }
    return Dim::unknown();
  }

  void describe(const Value& input) {
    const TensorType& type = input.type();
    if (!type.hasRank())
      return;
    const InputReaders readers = facts.of(input);
    const DocumentedInput* documented = documentedInput(input);
    if (!documented && isInteger(type.elementType()) && describeLength(input, readers))
      return;
    const InputFeed feed = feedOf(input, readers);
    // The readers of an input take precedence over its name.
    if (documented && !countsAllTokens(input, *documented) &&
        (feed == InputFeed::Any || feed == documented->feed || agrees(documented->feed, readers)))
      return;
    // Drivers generate outputs of an encoder.
    if (feed == InputFeed::Any && isFloatingPoint(type.elementType()) && type.rank() >= 3 &&
        &input != embeddings)
      return;
    ManifestInput described;
    described.input = input.name().str();
    described.dtype = type.elementType();
    described.feed = feed;
    for (unsigned axis = 0; axis < type.rank(); ++axis)
      described.shape.push_back(extentOf(type, axis, feed));
    manifest.inputs.push_back(std::move(described));
  }

  /// Whether an axis of a documented input, which has an entry for each new token, is declared to
  /// have one for each token.
  bool countsAllTokens(const Value& input, const DocumentedInput& documented) const {
    for (unsigned axis = 0; axis < documented.rank && input.type().hasRank(); ++axis) {
      const Dim& extent = input.type().dim(axis);
      if (documented.axes[axis] == DocumentedExtent::NewTokens && !extent.value() &&
          (extent.isKnownEqual(past + fresh) || extent.isKnownEqual(past + appended)) &&
          !extent.isKnownEqual(fresh))
        return true;
    }
    return false;
  }

  bool isBatchExtent(const Dim& extent) const {
    return !extent.value() &&
           (extent.isKnownEqual(batch) || (batch.isUnknown() && !extent.isKnownEqual(fresh)));
  }

  /// Describes a number of tokens, for all batch rows or for each, or a flag for a past.
  bool describeLength(const Value& input, const InputReaders& readers) {
    const TensorType& type = input.type();
    if (type.rank() > 1)
      return false;
    const bool isOne = type.rank() == 0 || (type.rank() == 1 && type.dim(0).value() == 1);
    const bool isPerRow = type.rank() == 1 && !isOne && isBatchExtent(type.dim(0));
    if (isOne && readers.isSwitch && !readers.isMask) {
      // The hidden keys of the triangle are right for whole prompts, and a single token needs no
      // triangle.
      manifest.chunkBatch = 0;
      addLength(input, LengthFeed::NoPast);
      return true;
    }
    const bool isOperand = !readers.lengths.empty();
    if ((!isOne && !isPerRow && !isOperand) || readers.isBatchIndex || &input == tokens)
      return false;
    const ElementType element = type.elementType();
    if (element != ElementType::Int64 && element != ElementType::Int32)
      return false;
    if (!readers.any() || (isOne && readers.isMask))
      return false;
    const std::optional<LengthFeed> feed = lengthOf(readers);
    if (!feed)
      return false;
    const bool isTold = isOperand && isPerBatchRow(readers.lengths.front().feed);
    addLength(input, isPerRow || isTold ? ofEachRow(*feed) : *feed);
    return true;
  }

  void addLength(const Value& input, LengthFeed feed) {
    ManifestLength length;
    length.input = input.name().str();
    length.dtype = input.type().elementType();
    for (const Dim& extent : input.type().shape())
      length.shape.push_back(extent.value() ? ManifestExtent(*extent.value())
                                            : ManifestExtent(std::string("batch")));
    length.feed = feed;
    manifest.lengths.push_back(std::move(length));
  }

  /// Determines the length from operators that define their operands, or otherwise from the starts
  /// and ends of ranges and slices. nullopt for one of two lengths whose sum is read if nothing
  /// distinguishes them.
  std::optional<LengthFeed> lengthOf(const InputReaders& readers) const {
    for (const InputReaders::Length& length : readers.lengths)
      if (std::optional<LengthFeed> feed = lengthBehind(length))
        return *feed;
    if (readers.isCount)
      return LengthFeed::NewLength;
    auto isStart = [&](const InputReaders::Length& bound) {
      return bound.feed == LengthFeed::PastLength && lengthBehind(bound);
    };
    const auto start = llvm::find_if(readers.bounds, isStart);
    if (start != readers.bounds.end())
      return *lengthBehind(*start);
    // New tokens follow the earlier ones: the sum of both is the total.
    if (llvm::any_of(readers.addends, [&](const Value* addend) { return isPast(*addend); }))
      return LengthFeed::NewLength;
    if (!readers.addends.empty())
      return std::nullopt;
    if (readers.isSummed)
      return LengthFeed::PastLength;
    for (const InputReaders::Length& bound : readers.bounds)
      if (std::optional<LengthFeed> feed = lengthBehind(bound))
        return *feed;
    return LengthFeed::PastLength;
  }

  /// Whether a range or slice starts at the input itself, or an operator reads it as the past.
  bool isPast(const Value& input) const {
    const InputReaders readers = facts.of(input);
    auto isIt = [](const InputReaders::Length& use) {
      return use.offset.value() == 0 &&
             (use.feed == LengthFeed::PastLength || use.feed == LengthFeed::PastLengthPerBatch);
    };
    return llvm::any_of(readers.bounds, isIt) || llvm::any_of(readers.lengths, isIt);
  }

  /// Meaning of the input if a number computed from it is a length.
  std::optional<LengthFeed> lengthBehind(const InputReaders::Length& length) const {
    const Dim earlier = past.isUnknown() ? Dim::symbol("earlier tokens") : past;
    Dim number = earlier;
    if (length.feed == LengthFeed::TotalLength || length.feed == LengthFeed::TotalLengthPerBatch)
      number = earlier + fresh;
    if (length.feed == LengthFeed::TotalLengthPerBatchMinusOne)
      number = earlier + fresh - Dim::fixed(1);
    // If the new tokens' extent is unknown, a length to which nothing was added keeps its meaning.
    if (fresh.isUnknown() && length.offset.value() == 0)
      return ofAllRows(length.feed);
    number = number - length.offset;
    return number.isKnownEqual(earlier)           ? std::optional(LengthFeed::PastLength)
           : number.isKnownEqual(earlier + fresh) ? std::optional(LengthFeed::TotalLength)
           : number.isKnownEqual(earlier + fresh - Dim::fixed(1))
               ? std::optional(LengthFeed::TotalLengthMinusOne)
           : number.isKnownEqual(fresh) ? std::optional(LengthFeed::NewLength)
                                        : std::nullopt;
  }

  static LengthFeed ofAllRows(LengthFeed feed) {
    return feed == LengthFeed::PastLengthPerBatch            ? LengthFeed::PastLength
           : feed == LengthFeed::TotalLengthPerBatch         ? LengthFeed::TotalLength
           : feed == LengthFeed::TotalLengthPerBatchMinusOne ? LengthFeed::TotalLengthMinusOne
                                                             : feed;
  }

  static LengthFeed ofEachRow(LengthFeed feed) {
    return feed == LengthFeed::PastLength            ? LengthFeed::PastLengthPerBatch
           : feed == LengthFeed::TotalLength         ? LengthFeed::TotalLengthPerBatch
           : feed == LengthFeed::TotalLengthMinusOne ? LengthFeed::TotalLengthPerBatchMinusOne
                                                     : feed;
  }

  /// Whether the readers of an input are consistent with its name.
  static bool agrees(InputFeed named, const InputReaders& readers) {
    const bool isPlace = !readers.tables.empty() || readers.isAngle || readers.isSummed ||
                         readers.isCompared || readers.isSelfCompared;
    if (named == InputFeed::VisibleKeys)
      return readers.isMask ? !readers.isAdded : readers.tables.empty();
    return isPlace || !readers.isMask;
  }

  InputFeed feedOf(const Value& input, const InputReaders& readers) const {
    if (&input == tokens)
      return InputFeed::Tokens;
    const bool isWhole = isInteger(input.type().elementType());
    if (isWhole && readers.isBatchIndex && input.type().rank() == 1)
      return InputFeed::BatchRows;
    if (isWhole && readers.isSelfCompared)
      return InputFeed::Segments;
    if (isWhole && !readers.tables.empty())
      return feedOfTables(readers);
    if (readers.isMask)
      return readers.isAdded && isFloatingPoint(input.type().elementType())
                 ? InputFeed::AdditiveMask
             : readers.hidesByOne ? InputFeed::HiddenKeys
                                  : InputFeed::VisibleKeys;
    if (isWhole && input.type().rank() >= 1 &&
        (readers.isAngle || readers.isSummed || readers.isCompared))
      return InputFeed::Positions;
    return InputFeed::Any;
  }

  static InputFeed feedOfTables(const InputReaders& readers) {
    int64_t rows = readers.tables.front().rows;
    for (const InputReaders::Table& table : readers.tables)
      rows = std::min(rows, table.rows);
    return rows > mostSegments                 ? InputFeed::Positions
           : rows >= 2 && rows <= mostSegments ? InputFeed::Segments
                                               : InputFeed::Any;
  }

  static bool isOverKeys(InputFeed feed) {
    return ir::isMaskFeed(feed) || feed == InputFeed::KeyPositions;
  }

  ManifestExtent extentOf(const TensorType& type, unsigned axis, InputFeed feed) const {
    const Dim& extent = type.shape()[axis];
    if (std::optional<int64_t> fixed = extent.value())
      return *fixed;
    if (extent.isKnownEqual(batch))
      return "batch";
    if (extent.isKnownEqual(fresh))
      return "new";
    if (extent.isKnownEqual(past))
      return "past";
    if (extent.isKnownEqual(past + fresh))
      return "total";
    const unsigned last = type.rank() - 1;
    if (axis == last && feed == InputFeed::BatchRows)
      return "batch";
    if (axis == last && (isOverKeys(feed) || feed == InputFeed::Segments))
      return "total";
    if (axis == last && feed != InputFeed::Any)
      return "new";
    if (axis == 0 && llvm::none_of(extent.symbols(), [&](const std::string& symbol) {
          return laterSymbols.contains(symbol);
        }))
      return "batch";
    if (axis + 1 == last && isOverKeys(feed))
      return "new";
    if (isOverKeys(feed))
      return int64_t{1};
    return extent.str();
  }

  const Graph& graph;
  const InterfaceFacts& facts;
  Manifest& manifest;
  llvm::StringSet<> known;
  llvm::StringSet<> laterSymbols;
  std::vector<const Value*> open;
  const Value* tokens = nullptr;
  Dim batch;
  Dim fresh;
  Dim past;
  Dim appended;
  const Value* embeddings = nullptr; ///< if no input holds token ids
};

} // namespace

void describeInputs(const Graph& graph, const InterfaceFacts& facts, Manifest& manifest) {
  Roles(graph, facts, manifest).describe();
  for (ManifestCache& cache : manifest.caches)
    for (const auto& [past, contents] : facts.given.states)
      if (cache.past == past && cache.update() == CacheUpdate::State)
        cache.initial = contents;
  manifest.padsRight |= facts.countsTokens;
}

} // namespace kvopt::analysis
