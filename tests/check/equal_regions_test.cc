// Equal layers are evaluated once, and a fault in one of them is found.
#include "tests/check/checked_models.h"

namespace kvopt::check {
namespace {

constexpr int layerCount = 4;

/// Text for each layer, in which # is the layer's number and @ the next one's.
std::string forLayers(int layers, const std::string& text) {
  std::string all;
  for (int i = 0; i < layers; ++i)
    for (char letter : text)
      all += letter == '#'   ? std::to_string(i)
             : letter == '@' ? std::to_string(i + 1)
                             : std::string(1, letter);
  return all;
}

/// Attention layers with growing caches. Each adds to the sum of the earlier ones.
std::string stacked(int layers, const std::string& layer) {
  auto listed = [&](const std::string& text) { return forLayers(layers, text); };
  return "<ir_version: 8, opset_import: [\"\" : 17]>\ng (float[B, S, 8] x0" +
         listed(", float[B, 1, P, 8] past_key_#, float[B, 1, P, 8] past_value_#") +
         ")\n  => (float[B, S, 8] x" + std::to_string(layers) +
         listed(", float[B, 1, T, 8] present_key_#, float[B, 1, T, 8] present_value_#") +
         ")\n<int64[1] one = {1}, int64[1] last = {3}, float shift = {3}, float quarter = {0.25}, "
         "int64[1] zero = {0}, int64[1] three = {3}, int64[1] two = {2}" +
         listed(", float scale_# = {0.5}, float half_# = {0.5}") + ">\n{\n" + listed(layer) + "}\n";
}

constexpr const char* rowsOfLayer = R"(
  rows_# = Unsqueeze (x#, one)
  shifted_# = Add (rows_#, shift)
  present_key_# = Concat <axis = 2> (past_key_#, rows_#)
  present_value_# = Concat <axis = 2> (past_value_#, shifted_#)
  part_# = Slice (x#, zero, two, last_axis_#)
)";

constexpr const char* spelledLayer = R"(
  turned_# = Transpose <perm = [0, 1, 3, 2]> (present_key_#)
  product_# = MatMul (rows_#, turned_#)
  scores_# = Mul (product_#, scale_#)
  weights_# = Softmax <axis = -1> (scores_#)
  attended_# = MatMul (weights_#, present_value_#)
  mean_# = ReduceMean <axes = [2]> (part_#)
  apart_# = Sub (rows_#, shifted_#)
)";

/// The same with a stable softmax, and the scale on the query.
constexpr const char* respelledLayer = R"(
  query_# = Mul (scale_#, rows_#)
  columns_# = Transpose <perm = [0, 1, 3, 2]> (present_key_#)
  logits_# = MatMul (query_#, columns_#)
  top_# = ReduceMax <axes = [3]> (logits_#)
  below_# = Sub (logits_#, top_#)
  powers_# = Exp (below_#)
  total_# = ReduceSum (powers_#, last)
  sums_# = MatMul (powers_#, present_value_#)
  attended_# = Div (sums_#, total_#)
  added_# = ReduceSum (part_#, last_axis_#)
  mean_# = Mul (added_#, half_#)
  minus_# = Neg (shifted_#)
  apart_# = Add (rows_#, minus_#)
)";

constexpr const char* sumOfLayer = R"(
  both_# = Add (attended_#, apart_#)
  joined_# = Squeeze (both_#, one)
  moved_# = Add (joined_#, mean_#)
  x@ = Add (x#, moved_#)
)";

std::string layersOf(const char* middle, int layers = layerCount) {
  std::string text = stacked(layers, std::string(rowsOfLayer) + middle + sumOfLayer);
  // The axis of columns, in each layer.
  return edited(text, "int64[1] last = {3}",
                "int64[1] last = {3}" + forLayers(layers, ", int64[1] last_axis_# = {2}"));
}

ir::Manifest manifestOf(int layers = layerCount) {
  ir::Manifest manifest;
  for (int i = 0; i < layers; ++i)
    for (const char* role : {"key", "value"}) {
      ir::ManifestCache cache;
      cache.layer = i;
      cache.role = std::string(role) == "key" ? ir::CacheRole::Key : ir::CacheRole::Value;
      cache.past = std::string("past_") + role + "_" + std::to_string(i);
      cache.present = std::string("present_") + role + "_" + std::to_string(i);
      cache.shape = {std::string("B"), int64_t(1), std::string("P"), int64_t(8)};
      manifest.caches.push_back(cache);
    }
  return manifest;
}

CheckReport checkLayers(const std::string& before, const std::string& after,
                        const ir::Manifest& second) {
  auto first = read(before), other = read(after);
  if (!first || !other)
    return {};
  return checkModels({*first, manifestOf(int(second.caches.size() / 2))}, {*other, second});
}

TEST(EqualRegions, AreEvaluatedOnce) {
  size_t evaluated = 0;
  for (int layers : {3, 6}) {
    const CheckReport report = checkLayers(layersOf(spelledLayer, layers),
                                           layersOf(respelledLayer, layers), manifestOf(layers));
    EXPECT_EQ(report.verdict(), Verdict::ProvedReduced) << weakest(report);
    size_t regions = 0, shared = 0;
    for (const Obligation& part : report.obligations) {
      regions += !part.isOutput;
      shared += !part.evaluatedAs.empty();
      EXPECT_TRUE(part.isOutput || part.elements > 0) << part.after;
    }
    EXPECT_EQ(regions, size_t(3 * layers));
    EXPECT_EQ(shared, size_t(3 * (layers - 1)));
    EXPECT_TRUE(evaluated == 0 || evaluated == report.regionsEvaluated) << evaluated;
    evaluated = report.regionsEvaluated;
    EXPECT_LE(evaluated, 3u);
  }
}

TEST(EqualRegions, StopAtAnArrangementOfWhatOnlyOneModelHas) {
  // The first model's attention is computed in columns. A fault after the last layer is seen only
  // if no region reaches through the attention of two layers.
  const std::string turned =
      edited(spelledLayer, "attended_# = MatMul (weights_#, present_value_#)",
             "values_# = Transpose <perm = [0, 1, 3, 2]> (present_value_#)\n"
             "  keys_# = Transpose <perm = [0, 1, 3, 2]> (weights_#)\n"
             "  columns_of_# = MatMul (values_#, keys_#)\n"
             "  attended_# = Transpose <perm = [0, 1, 3, 2]> (columns_of_#)");
  const std::string before = layersOf(turned.c_str(), 2), after = layersOf(respelledLayer, 2);
  EXPECT_EQ(checkLayers(before, after, manifestOf(2)).verdict(), Verdict::ProvedReduced);
  const CheckReport report = checkLayers(
      before,
      edited(after, "x2 = Add (x1, moved_1)", "y = Add (x1, moved_1)\n  x2 = Add (y, shift)"),
      manifestOf(2));
  EXPECT_EQ(report.verdict(), Verdict::Different) << weakest(report);
  EXPECT_EQ(report.count(Verdict::Skipped), 0u);
}

struct Fault {
  const char* from;
  const char* to;
};

/// Faults of one layer, in which # is its number, and 1 another layer's.
constexpr Fault faults[] = {
    {"query_# = Mul (scale_#, rows_#)", "query_# = Mul (quarter, rows_#)"},
    {"float scale_# = {0.5}", "float scale_# = {0.25}"},
    {"float half_# = {0.5}", "float half_# = {0.25}"},
    {"sums_# = MatMul (powers_#, present_value_#)", "sums_# = MatMul (powers_#, present_key_#)"},
    {"sums_# = MatMul (powers_#, present_value_#)", "sums_# = MatMul (powers_#, present_value_1)"},
    {"(present_key_#)", "(present_key_1)"},
    {"Concat <axis = 2> (past_value_#, shifted_#)", "Concat <axis = 2> (past_key_#, shifted_#)"},
    {"Concat <axis = 2> (past_value_#, shifted_#)", "Concat <axis = 2> (past_value_1, shifted_#)"},
    {"minus_# = Neg (shifted_#)\n  apart_# = Add (rows_#, minus_#)",
     "minus_# = Neg (rows_#)\n  apart_# = Add (shifted_#, minus_#)"},
    {"total_# = ReduceSum (powers_#, last)", "total_# = ReduceSum (powers_#, last_axis_#)"},
    {"attended_# = Div (sums_#, total_#)", "attended_# = Mul (sums_#, total_#)"},
    {"below_# = Sub (logits_#, top_#)", "below_# = Sub (top_#, logits_#)"},
};

TEST(EqualRegions, AFaultOfOneLayerIsFound) {
  const std::string first = layersOf(spelledLayer), second = layersOf(respelledLayer);
  int layer = layerCount / 2;
  for (const Fault& fault : faults) {
    auto ofLayer = [&](std::string text) {
      for (char& letter : text)
        letter = letter == '#' ? char('0' + layer) : letter;
      return text;
    };
    const std::string wrong = edited(second, ofLayer(fault.from), ofLayer(fault.to));
    EXPECT_EQ(checkLayers(first, wrong, manifestOf()).verdict(), Verdict::Different)
        << ofLayer(fault.to);
    layer = layer == layerCount - 1 ? layerCount / 2 : layerCount - 1; // in the middle, or the last
  }
}

TEST(EqualRegions, HaveEqualShapes) {
  // The sum of three columns is not twice their mean.
  for (int layer : {layerCount / 2, layerCount - 1}) {
    const std::string number = std::to_string(layer);
    const std::string from = "part_" + number + " = Slice (x" + number + ", zero, two";
    const std::string to = "part_" + number + " = Slice (x" + number + ", zero, three";
    EXPECT_EQ(checkLayers(edited(layersOf(spelledLayer), from, to),
                          edited(layersOf(respelledLayer), from, to), manifestOf())
                  .verdict(),
              Verdict::Different);
  }
}

TEST(EqualRegions, HaveEqualCaches) {
  for (size_t layer : {size_t(layerCount / 2), size_t(layerCount - 1)}) {
    // The cache of another layer continues in this one's place.
    ir::Manifest exchanged = manifestOf();
    std::swap(exchanged.caches[2 * layer].past, exchanged.caches[2].past);
    EXPECT_EQ(checkLayers(layersOf(spelledLayer), layersOf(respelledLayer), exchanged).verdict(),
              Verdict::Different);
    ir::Manifest roles = manifestOf();
    std::swap(roles.caches[2 * layer].past, roles.caches[2 * layer + 1].past);
    EXPECT_EQ(checkLayers(layersOf(spelledLayer), layersOf(respelledLayer), roles).verdict(),
              Verdict::Different);
    // The rows of one cache are elsewhere.
    ir::Manifest ring = manifestOf();
    ring.caches[2 * layer].storage = ir::RingCache{};
    ring.caches[2 * layer].shape[2] = int64_t(3);
    EXPECT_EQ(checkLayers(layersOf(spelledLayer), layersOf(respelledLayer), ring).verdict(),
              Verdict::Different);
  }
}

/// Layers with a bias by distance, which is cut off beyond the scope. Each has its own table.
std::string biasedLayers(const char* middle) {
  constexpr const char* table = R"(
  sizes_# = Shape (present_key_#)
  count_# = Gather (sizes_#, axis_of_rows)
  keys_# = Range (none, count_#, each)
  bound_# = Min (keys_#, most_#)
  numbers_# = Cast <to = 1> (bound_#)
  angles_# = Mul (numbers_#, step_#)
  bias_# = Sin (angles_#)
)";
  const std::string scores = middle == spelledLayer ? "scores_#" : "logits_#";
  const std::string isMul =
      middle == spelledLayer ? "Mul (product_#, scale_#)" : "MatMul (query_#, columns_#)";
  const std::string biased =
      edited(middle, scores + " = " + isMul,
             "unbiased_# = " + isMul + "\n  " + scores + " = Add (unbiased_#, bias_#)");
  return edited(
      stacked(layerCount, std::string(rowsOfLayer) + table + biased + sumOfLayer),
      "int64[1] last = {3}",
      "int64[1] last = {3}, int64 axis_of_rows = {2}, int64 none = {0}, int64 each = {1}" +
          forLayers(layerCount, ", int64[1] last_axis_# = {2}, int64 most_# = {600}, "
                                "float step_# = {0.125}"));
}

TEST(EqualRegions, ATableOfOneLayerIsItsOwn) {
  const std::string first = biasedLayers(spelledLayer), second = biasedLayers(respelledLayer);
  const CheckReport report = checkLayers(first, second, manifestOf());
  EXPECT_EQ(report.verdict(), Verdict::ProvedReduced) << weakest(report);
  EXPECT_LE(report.regionsEvaluated, 4u);
  for (int layer : {layerCount / 2, layerCount - 1}) {
    const std::string number = std::to_string(layer);
    auto verdictWith = [&](const std::string& from, const std::string& to) {
      return checkLayers(first, edited(second, from, to), manifestOf()).verdict();
    };
    EXPECT_EQ(
        verdictWith("float step_" + number + " = {0.125}", "float step_" + number + " = {0.25}"),
        Verdict::Different);
    EXPECT_EQ(verdictWith("(unbiased_" + number + ", bias_" + number + ")",
                          "(unbiased_" + number + ", angles_" + number + ")"),
              Verdict::Different);
    // Off by one beyond the scope only.
    EXPECT_EQ(verdictWith("int64 most_" + number + " = {600}", "int64 most_" + number + " = {601}"),
              Verdict::Tested);
  }
}

TEST(EqualRegions, HaveRowsInEqualPlaces) {
  // Keys have their heads after their rows, so that no layer shares its input with the first model.
  std::string rows = edited(
      rowsOfLayer, "present_key_# = Concat <axis = 2> (past_key_#, rows_#)",
      "back_# = Transpose <perm = [0, 2, 1, 3]> (past_key_#) whole_# = Concat <axis = 2> (back_#, "
      "rows_#) present_key_# = Transpose <perm = [0, 2, 1, 3]> (whole_#)");
  const std::string attention = edited(respelledLayer, "(present_key_#)", "(whole_#)");
  std::string second =
      edited(stacked(layerCount, rows + attention + sumOfLayer), "int64[1] last = {3}",
             "int64[1] last = {3}" + forLayers(layerCount, ", int64[1] last_axis_# = {2}"));
  ir::Manifest turned = manifestOf();
  for (int layer = 0; layer < layerCount; ++layer) {
    const std::string number = std::to_string(layer);
    for (const char* name : {"P, 8] past_key_", "T, 8] present_key_"}) {
      const std::string rest = std::string(name).substr(1) + number;
      const std::string extent(1, name[0]);
      second = edited(second, "float[B, 1, " + extent + rest, "float[B, " + extent + ", 1" + rest);
    }
    ir::ManifestCache& keys = turned.caches[2 * size_t(layer)];
    std::swap(keys.shape[1], keys.shape[2]);
    keys.sequenceAxis = 1;
    keys.permutation = {0, 2, 1, 3};
  }
  auto verdictOfRows = [&](const ir::Manifest& manifest) {
    for (const Obligation& part : checkLayers(layersOf(spelledLayer), second, manifest).obligations)
      if (part.isOutput && part.after == "x" + std::to_string(layerCount))
        return part.verdict;
    return Verdict::Skipped;
  };
  EXPECT_EQ(verdictOfRows(turned), Verdict::ProvedReduced);
  ir::Manifest ring = turned;
  ring.caches[2 * size_t(layerCount - 1)].storage = ir::RingCache{};
  ring.caches[2 * size_t(layerCount - 1)].shape[1] = int64_t(3);
  EXPECT_GT(verdictOfRows(ring), Verdict::Tested);
}

} // namespace
} // namespace kvopt::check
