// A generated decoder while it is built: its sizes, its values, and the spellings chosen for it.
#pragma once

#include "driver/synthetic/graph_builder.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace kvopt::generated {

/// Rows of caches of fixed extents.
inline constexpr int64_t cacheCapacity = 24;
/// Rows of tables of positions; no run is longer.
inline constexpr int64_t positionRows = 32;
inline constexpr int64_t vocabularySize = 31;
inline constexpr int64_t hiddenSize = 12;

/// Random numbers that are the same on every platform.
class Dice {
public:
  explicit Dice(uint64_t seed) : engine(seed) {}
  size_t below(size_t count) { return engine() % count; }
  bool oneIn(size_t count) { return below(count) == 0; }
  template <class T> T anyOf(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

private:
  std::mt19937_64 engine;
};

enum class Positions { None, Learned, Rotary };

/// What a decoder computes, however it is spelled.
struct DecoderSizes {
  int64_t heads = 4;
  int64_t groups = 2;              ///< key and value heads
  int64_t width = 4;               ///< columns of a head
  std::vector<int64_t> windows{0}; ///< of each layer; 0: without a window
  bool isStatic = false;           ///< caches of fixed extents, written at positions
  bool hasPadding = false;         ///< an input hides keys
  bool takesPositions = false;     ///< positions are an input; otherwise they are computed
  Positions positions = Positions::None;

  int64_t repeats() const { return heads / groups; }
};

class DecoderGraph;

/// One way to spell a part of a decoder.
template <class Function> struct Spelling {
  const char* name; ///< unique: `part/spelling`
  Function* build;
  /// Whether it can be used; null: always.
  bool (*fits)(const DecoderGraph&) = nullptr;
};

/// Where a near miss changes a decoder.
enum class Stage {
  Present,        ///< any cache's output
  Keys,           ///< [B,G,T,D], the joined rows
  Values,         ///< the same
  RepeatedValues, ///< [B,H,T,D]
  Scores,         ///< [B,H,S,T], scaled and not masked
  Seen,           ///< bool, broadcasts to [B,H,S,T]
  Weights,        ///< [B,H,S,T], after softmax
};

/// A change after which a part computes something that it must not be taken for.
struct NearMiss {
  const char* name;
  Stage stage;
  ir::Value& (*change)(DecoderGraph&, ir::Value&);
  bool (*fits)(const DecoderGraph&) = nullptr;
};

/// Which decoder to build.
struct DecoderRecipe {
  DecoderSizes sizes;
  uint64_t seed = 0;
  /// Chance, in percent, of a random spelling where the first one of a table would do.
  uint64_t rareSpellings = 0;
  /// Names of spellings that are taken wherever they fit.
  std::vector<std::string> preferred;
  const NearMiss* nearMiss = nullptr;
};

/// The axes of a cache.
struct CacheAxes {
  int64_t rank = 4;
  int64_t rows = 2;  ///< of past and new tokens
  int64_t heads = 1; ///< -1: no axis of their own
  int64_t batch = 0; ///< -1: no axis of its own
};

/// Builds one decoder. Lengths are lists of one number.
class DecoderGraph : public driver::GraphBuilder {
public:
  DecoderGraph(ir::Model& built, const driver::DecoderSpec& habits, const DecoderRecipe& decoder)
      : GraphBuilder(built, habits), opset(habits.opset), recipe(decoder), sizes(decoder.sizes),
        dice(decoder.seed) {}

  /// Chooses a spelling that fits, and notes its name. Preferred ones take turns, in their order.
  template <class Function, size_t count>
  Function& choose(const Spelling<Function> (&table)[count]) {
    std::vector<const Spelling<Function>*> fitting;
    std::vector<const Spelling<Function>*> preferred;
    for (const Spelling<Function>& spelling : table)
      if (!spelling.fits || spelling.fits(*this))
        fitting.push_back(&spelling);
    for (const std::string& name : recipe.preferred)
      for (const Spelling<Function>* spelling : fitting)
        if (name == spelling->name)
          preferred.push_back(spelling);
    const bool isRare = recipe.rareSpellings > dice.below(100);
    const Spelling<Function>* chosen = fitting[isRare ? dice.below(fitting.size()) : 0];
    if (!preferred.empty())
      chosen = preferred[turns[table]++ % preferred.size()];
    used.insert(chosen->name);
    return *chosen->build;
  }

  /// The value, or what the near miss makes of it if it changes this stage of this layer.
  ir::Value& at(Stage stage, ir::Value& value) {
    const NearMiss* miss = recipe.nearMiss;
    const bool isHere = miss && miss->stage == stage &&
                        (stage == Stage::Present || layer == changedLayer) &&
                        (!miss->fits || miss->fits(*this));
    if (!isHere)
      return value;
    isChanged = true;
    return miss->change(*this, value);
  }

  ir::Value& floats(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<float> values);
  ir::Value& booleans(llvm::ArrayRef<int64_t> shape, const std::vector<bool>& values);
  ir::Value& toBool(ir::Value& x) { return cast(x, ir::ElementType::Bool); }
  ir::Value& toInt(ir::Value& x) { return cast(x, ir::ElementType::Int64); }
  ir::Value& asFloat(ir::Value& x) { return cast(x, ir::ElementType::Float); }
  ir::Value& add(ir::Value& a, ir::Value& b) { return op("Add", {&a, &b}); }
  ir::Value& sub(ir::Value& a, ir::Value& b) { return op("Sub", {&a, &b}); }
  ir::Value& mul(ir::Value& a, ir::Value& b) { return op("Mul", {&a, &b}); }
  ir::Value& where(ir::Value& c, ir::Value& a, ir::Value& b) { return op("Where", {&c, &a, &b}); }
  ir::Value& scalar(ir::Value& list) { return op("Squeeze", {&list, &ints({0})}); }
  ir::Value& concat(llvm::ArrayRef<ir::Value*> parts, int64_t axis) {
    return op("Concat", parts, {{"axis", axis}});
  }
  ir::Value& reshapeTo(ir::Value& x, std::initializer_list<int64_t> shape) {
    return op("Reshape", {&x, &ints(shape)});
  }
  ir::Value& shapeOf(ir::Value& x) { return op("Shape", {&x}); }
  /// One extent, as a list.
  ir::Value& extentOf(ir::Value& x, int64_t axis) {
    return op("Shape", {&x}, {{"start", axis}, {"end", axis + 1}});
  }
  ir::Value& range(ir::Value& begin, ir::Value& end) {
    return op("Range", {&scalar(begin), &scalar(end), &integer(1)});
  }
  /// A list as the only axis of several that is not 1.
  ir::Value& along(ir::Value& list, int64_t axis, int64_t rank);
  /// The axis moved to another place, and the others in their order.
  ir::Value& movedAxis(ir::Value& x, int64_t rank, int64_t from, int64_t to);
  ir::Value& reversed(ir::Value& x, int64_t axis);
  /// Equal parts along an axis.
  std::vector<ir::Value*> split(ir::Value& x, int64_t axis, llvm::ArrayRef<int64_t> extents);
  /// Zeros before and after the elements of an axis.
  ir::Value& padded(ir::Value& x, int64_t axis, ir::Value& before, ir::Value& after);
  ir::Value& reduced(const char* type, ir::Value& x, int64_t axis, bool keepsAxis);

  const int64_t opset;
  const DecoderRecipe& recipe;
  const DecoderSizes& sizes;
  Dice dice;
  std::set<std::string> used;          ///< names of spellings
  std::map<const void*, size_t> turns; ///< by table, how often a preferred one was taken
  size_t layer = 0;
  size_t changedLayer = 0; ///< by the near miss
  bool isChanged = false;

  ir::Value* tokens = nullptr;      ///< int64 [B,S]
  ir::Value* positionIds = nullptr; ///< int64 [B,S]; null: not an input
  ir::Value* padding = nullptr;     ///< int64 [B,T]; null: not an input
  ir::Value* batch = nullptr;
  ir::Value* sequence = nullptr;
  ir::Value* first = nullptr;     ///< the place of the first new row among the keys
  ir::Value* total = nullptr;     ///< T, of static caches their capacity
  ir::Value* queryRows = nullptr; ///< int64 [S], the place of each new row among the keys
  ir::Value* keyRows = nullptr;   ///< int64 [T], 0, 1, …
  ir::Value* zero = nullptr;
  ir::Value* maskedScores = nullptr; ///< of the present layer
  CacheAxes axes;                    ///< of the cache that is updated
};

} // namespace kvopt::generated
