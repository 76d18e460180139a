// Latent caches that replace keys and values.
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

/// A matrix of different numbers, as text.
std::string matrixText(int rows, int columns, int first) {
  std::string text;
  for (int i = 0; i < rows * columns; ++i)
    text += (i ? ", " : "") + std::to_string((first + 37 * i) % 101 + 1) + ".5";
  return "float[" + std::to_string(rows) + ", " + std::to_string(columns) + "] # = {" + text + "}";
}

std::string constants() {
  return "<" + edited(matrixText(8, 4, 3), "#", "down") + ", " +
         edited(matrixText(4, 8, 50), "#", "up_key") + ", " +
         edited(matrixText(4, 8, 71), "#", "up_value") +
         ", int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] zero = {0}, "
         "int64[1] end = {4}, int64[1] back = {-1}, float scale = {0.5}>\n";
}

/// Keys and values of full width, computed from rows of four numbers.
std::string ofFullWidth() {
  return R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[B, S, 8] inputs_embeds, float[B, 1, P, 8] past_key, float[B, 1, P, 8] past_value)
  => (float[B, 1, S, 8] attended, float[B, 1, T, 8] present_key, float[B, 1, T, 8] present_value)
)" + constants() +
         R"({
  rows = Unsqueeze (inputs_embeds, one)
  low = MatMul (rows, down)
  key = MatMul (low, up_key)
  value = MatMul (low, up_value)
  present_key = Concat <axis = 2> (past_key, key)
  present_value = Concat <axis = 2> (past_value, value)
  turned = Transpose <perm = [0, 1, 3, 2]> (present_key)
  product = MatMul (rows, turned)
  scores = Mul (product, scale)
  weights = Softmax <axis = -1> (scores)
  attended = MatMul (weights, present_value)
}
)";
}

/// The same over the rows of four numbers, whose products are part of the query and the result.
std::string ofLatentRows() {
  return R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[B, S, 8] inputs_embeds, float[B, 1, P, 4] past_latent)
  => (float[B, 1, S, 8] attended, float[B, 1, T, 4] present_latent)
)" + constants() +
         R"({
  rows = Unsqueeze (inputs_embeds, one)
  low = MatMul (rows, down)
  latent = Identity (low)
  present_latent = Concat <axis = 2> (past_latent, latent)
  columns = Transpose <perm = [1, 0]> (up_key)
  query = MatMul (rows, columns)
  turned = Transpose <perm = [0, 1, 3, 2]> (present_latent)
  product = MatMul (query, turned)
  scores = Mul (product, scale)
  weights = Softmax <axis = -1> (scores)
  sums = MatMul (weights, present_latent)
  attended = MatMul (sums, up_value)
}
)";
}

ir::Manifest ofLatent() {
  ir::Manifest manifest = growing();
  ir::ManifestCache& cache = manifest.caches.front();
  for (const ir::ManifestCache& replaced : manifest.caches)
    cache.replaces.push_back({replaced.past, replaced.present});
  cache.role = ir::CacheRole::Latent;
  cache.past = "past_latent";
  cache.present = "present_latent";
  cache.shape[3] = int64_t(4);
  manifest.caches.pop_back();
  return manifest;
}

std::string latentVerdict(const std::string& before, const std::string& after) {
  auto first = read(before), second = read(after);
  const ir::Manifest grows = growing(), latent = ofLatent();
  return first && second ? weakest(checkModels({*first, grows}, {*second, latent})) : "";
}

TEST(LatentCache, RowsReplaceKeysAndValues) {
  EXPECT_EQ(latentVerdict(ofFullWidth(), ofLatentRows()), "proved-reduced: ");
}

TEST(LatentCache, FaultsAreFound) {
  for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
           {"attended = MatMul (sums, up_value)", "attended = MatMul (sums, up_key)"},
           {"Transpose <perm = [1, 0]> (up_key)", "Transpose <perm = [1, 0]> (up_value)"},
           // columns in another order, and the new rows before the others
           {"latent = Identity (low)", "latent = Slice (low, back, least, three, back)"},
           {"sums = MatMul (weights, present_latent)",
            "others = Concat <axis = 2> "
            "(latent, past_latent)\n  sums = MatMul (weights, others)"}}) {
    const std::string model =
        edited(edited(ofLatentRows(), from, to), "int64[1] end = {4}", "int64[1] least = {-9}");
    const std::string found = latentVerdict(ofFullWidth(), model);
    EXPECT_EQ(found.substr(0, found.find(':')), "different") << to << "\n" << found;
  }
}

TEST(LatentCache, RowsOfOtherValuesAreNotDecided) {
  // Keys also read what the second model does not keep, although it is zero.
  const std::string more =
      edited(ofFullWidth(), "key = MatMul (low, up_key)",
             "part = MatMul (low, up_key)\n  none = Sub (rows, rows)\n  key = Add (part, none)");
  EXPECT_EQ(
      latentVerdict(more, ofLatentRows()),
      "skipped: the cache 'past_latent': the first model's rows depend on more than latent rows");
  // The latent rows are not in the first model.
  std::string doubled =
      edited(ofLatentRows(), "latent = Identity (low)", "latent = Add (low, low)");
  doubled = edited(doubled, "scores = Mul (product, scale)",
                   "halves = Mul (product, scale)\n  scores = Mul (halves, scale)");
  doubled = edited(doubled, "sums = MatMul (weights, present_latent)",
                   "twice = MatMul (weights, present_latent)\n  sums = Mul (twice, scale)");
  EXPECT_EQ(
      latentVerdict(ofFullWidth(), doubled),
      "skipped: the cache 'past_latent': the first model does not have the values that make up "
      "its rows");
}

TEST(LatentCache, ShapesNeedNoRows) {
  auto withLength = [](const std::string& model, const std::string& past) {
    return edited(edited(model, "=> (float[B, 1, S, 8] attended,",
                         "=> (int64[1] length, float[B, 1, S, 8] attended,"),
                  "{\n  rows =",
                  "{\n  extents = Shape (" + past +
                      ")\n  length = Slice (extents, two, three, zero)\n  rows =");
  };
  auto first = read(withLength(ofFullWidth(), "past_key"));
  auto second = read(withLength(
      edited(ofLatentRows(), "latent = Identity (low)", "latent = Add (low, low)"), "past_latent"));
  ASSERT_TRUE(first && second);
  const ir::Manifest grows = growing(), latent = ofLatent();
  const CheckReport report = checkModels({*first, grows}, {*second, latent});
  for (const Obligation& obligation : report.obligations) {
    if (!obligation.isOutput)
      continue;
    EXPECT_EQ(obligation.verdict == Verdict::ProvedReduced, obligation.after == "length")
        << obligation.after << ": " << obligation.reason;
  }
}

} // namespace
} // namespace kvopt::check
