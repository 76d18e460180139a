// Caches of codes: quantized rows represent the rows of numbers.
#include "ir/ops/kvopt/cache_function_body.h"
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

/// Buffers of int8 codes with a scale for each row, as kvopt's operators keep them.
constexpr const char* coded = R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[B, S, 8] inputs_embeds, int8[B, 1, C, 8] past_key, float[B, 1, C, 1] past_key_scale,
   int8[B, 1, C, 8] past_value, float[B, 1, C, 1] past_value_scale, int64 past_length)
  => (float[B, 1, S, 8] attended, int8[B, 1, C, 8] present_key, float[B, 1, C, 1] present_key_scale,
      int8[B, 1, C, 8] present_value, float[B, 1, C, 1] present_value_scale)
<int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}, int64[1] all = {-1},
 float most = {127}, float least = {-127}, float scale = {0.5}>
{
  rows = Unsqueeze (inputs_embeds, one)
  start = Reshape (past_length, all)
  shape = Shape (rows)
  count = Gather (shape, two)
  end = Add (start, count)
  extents = Shape (past_key)
  capacity = Gather (extents, two)
  magnitudes = Abs (rows)
  largest = ReduceMax <axes = [-1]> (magnitudes)
  key_scale = Div (largest, most)
  value_scale = Div (largest, most)
  key_quotients = Div (rows, key_scale)
  key_rounded = Round (key_quotients)
  key_low = Min (key_rounded, most)
  key_codes = Max (key_low, least)
  key_new = Cast <to = 3> (key_codes)
  value_quotients = Div (rows, value_scale)
  value_rounded = Round (value_quotients)
  value_low = Min (value_rounded, most)
  value_codes = Max (value_low, least)
  value_new = Cast <to = 3> (value_codes)
  key_head = Slice (past_key, zero, start, two)
  key_tail = Slice (past_key, end, capacity, two)
  present_key = Concat <axis = 2> (key_head, key_new, key_tail)
  key_scale_head = Slice (past_key_scale, zero, start, two)
  key_scale_tail = Slice (past_key_scale, end, capacity, two)
  present_key_scale = Concat <axis = 2> (key_scale_head, key_scale, key_scale_tail)
  value_head = Slice (past_value, zero, start, two)
  value_tail = Slice (past_value, end, capacity, two)
  present_value = Concat <axis = 2> (value_head, value_new, value_tail)
  value_scale_head = Slice (past_value_scale, zero, start, two)
  value_scale_tail = Slice (past_value_scale, end, capacity, two)
  present_value_scale = Concat <axis = 2> (value_scale_head, value_scale, value_scale_tail)
  key_valid = Slice (present_key, zero, end, two)
  key_numbers = Cast <to = 1> (key_valid)
  key_scales = Slice (present_key_scale, zero, end, two)
  keys = Mul (key_numbers, key_scales)
  value_valid = Slice (present_value, zero, end, two)
  value_numbers = Cast <to = 1> (value_valid)
  value_scales = Slice (present_value_scale, zero, end, two)
  values = Mul (value_numbers, value_scales)
  turned = Transpose <perm = [0, 1, 3, 2]> (keys)
  product = MatMul (rows, turned)
  scores = Mul (product, scale)
  weights = Softmax <axis = -1> (scores)
  attended = MatMul (weights, values)
}
)";

ir::Manifest inCodes() {
  ir::Manifest manifest = inBuffers(ir::LengthFeed::PastLength);
  for (size_t i : {0u, 1u}) {
    ir::ManifestCache scales = manifest.caches[i];
    manifest.caches[i].dtype = ir::ElementType::Int8;
    scales.role = ir::scaleRole(scales.role);
    scales.past += "_scale";
    scales.present += "_scale";
    scales.shape[3] = int64_t(1);
    manifest.caches.push_back(scales);
  }
  return manifest;
}

std::string codedVerdict(const std::string& after, const ir::Manifest& manifest = inCodes()) {
  auto first = read(grown), second = read(after);
  if (!first || !second)
    return "";
  const ir::Manifest grows = growing();
  return weakest(checkModels({*first, grows}, {*second, manifest}));
}

TEST(CodedCache, RowsRepresentNumbers) {
  EXPECT_EQ(codedVerdict(coded), std::string("tested: ") + roundingGap);
}

TEST(CodedCache, FaultsAreFound) {
  for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
           // a scale of another row, the scales of values, and rows before the last one
           {"key_scales = Slice (present_key_scale, zero, end, two)",
            "twice = Concat <axis = 2> (key_scale, present_key_scale)\n  key_scales = Slice "
            "(twice, "
            "zero, end, two)"},
           {"key_scales = Slice (present_key_scale, zero, end, two)",
            "key_scales = Slice (present_value_scale, zero, end, two)"},
           {"key_valid = Slice (present_key, zero, end, two)",
            "key_valid = Slice (present_value, zero, end, two)"},
           {"Concat <axis = 2> (key_head, key_new, key_tail)",
            "Concat <axis = 2> (key_new, key_head, key_tail)"},
           {"Concat <axis = 2> (value_scale_head, value_scale, value_scale_tail)",
            "Concat <axis = 2> (value_scale_head, value_scale_tail, value_scale)"},
           // clamps to fewer codes, and a type that does not hold them
           {"key_low = Min (key_rounded, most)",
            "less = Constant <value_float = 63.0> ()\n  key_low = Min (key_rounded, less)"},
           {"float least = {-127}", "float least = {-100}"},
           {"value_new = Cast <to = 3> (value_codes)",
            "value_bytes = Cast <to = 2> (value_codes)\n  value_new = Cast <to = 3> (value_bytes)"},
           // another range of codes, a scale of all rows, and codes of twice the numbers
           {"key_scale = Div (largest, most)",
            "sum = Add (most, scale)\n  key_scale = Div (largest, sum)"},
           {"largest = ReduceMax <axes = [-1]> (magnitudes)",
            "largest = ReduceMax <axes = [-2, -1]> (magnitudes)"},
           {"key_quotients = Div (rows, key_scale)",
            "doubled = Add (rows, rows)\n  key_quotients = Div (doubled, key_scale)"}}) {
    const std::string found = codedVerdict(edited(coded, from, to));
    EXPECT_EQ(found.substr(0, found.find(':')), "different") << to << "\n" << found;
  }
}

TEST(CodedCache, OtherRoundingIsNotLeftOut) {
  // Rounding a row, or a result, is not rounding to codes.
  for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
           {"magnitudes = Abs (rows)", "whole = Round (rows)\n  magnitudes = Abs (whole)"},
           {"attended = MatMul (weights, values)",
            "sums = MatMul (weights, values)\n  halves = Div (sums, scale)\n  attended = Round "
            "(halves)"}}) {
    const std::string found = codedVerdict(edited(coded, from, to));
    EXPECT_EQ(found.substr(0, found.find(':')), "different") << to << "\n" << found;
  }
  EXPECT_EQ(codedVerdict(edited(coded, "key_rounded = Round (key_quotients)",
                                "key_rounded = Floor (key_quotients)")),
            "skipped: its rows are codes, and which nodes only round them is not known");
}

TEST(CodedCache, EqualRoundingIsProved) {
  auto first = read(coded), second = read(edited(coded,
                                                 "product = MatMul (rows, turned)\n  scores = "
                                                 "Mul (product, scale)",
                                                 "query = Mul (rows, scale)\n  scores = MatMul "
                                                 "(query, turned)"));
  ASSERT_TRUE(first && second);
  const ir::Manifest manifest = inCodes();
  const ir::Manifest other = inCodes();
  EXPECT_EQ(weakest(checkModels({*first, manifest}, {*second, other})), "proved-reduced: ");
  auto floored = read(
      edited(coded, "key_rounded = Round (key_quotients)", "key_rounded = Floor (key_quotients)"));
  EXPECT_EQ(checkModels({*first, manifest}, {*floored, other}).verdict(), Verdict::Different);
}

/// The text with rows of other numbers of columns.
std::string inColumns(std::string text, int64_t columns) {
  for (size_t at = 0; (at = text.find(", 8]", at)) != std::string::npos; ++at)
    text.replace(at, 4, ", " + std::to_string(columns) + "]");
  return text;
}

/// Attention by kvopt's operator over codes, with the operator's body.
std::string withBody(const ir::RowCode& code, int64_t columns) {
  const std::string type = code.element == ir::ElementType::Int8 ? "int8" : "uint8";
  const std::string caches = type + "[B, 1, C, " + std::to_string(code.elementsOf(columns)) + "] ";
  ir::BodyForm form;
  form.code = &code;
  return inColumns(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
g (float[B, S, 8] inputs_embeds, )" +
                       caches + R"(past_key, float[B, 1, C, 1] past_key_scale,
   )" + caches + R"(past_value, float[B, 1, C, 1] past_value_scale, int64[1] past_length)
  => (float[B, 1, S, 8] attended, )" +
                       caches + R"(present_key, float[B, 1, C, 1] present_key_scale,
   )" + caches + R"(present_value, float[B, 1, C, 1] present_value_scale)
<int64[1] one = {1}, float none = {0}>
{
  rows = Unsqueeze (inputs_embeds, one)
  attended, present_key, present_key_scale, present_value, present_value_scale =
    ai.kvopt.InPlaceQuantizedKvSdpa
    <scale = 0.5, causal = 0, window = 0, softcap = 0.0, mask_boolean = 0>
    (rows, rows, rows, past_key, past_key_scale, past_value, past_value_scale, past_length, none)
}
)",
                   columns) +
         ir::cacheFunctionText({ir::CachePlace::Buffer, &code, ir::CacheSharing::KeysAndValues},
                               form);
}

std::string bodyVerdict(const std::string& after, const ir::RowCode& code, int64_t columns) {
  ir::Manifest manifest = inCodes();
  manifest.lengths[0].shape = {int64_t(1)};
  for (size_t i : {0u, 1u}) {
    manifest.caches[i].dtype = code.element;
    manifest.caches[i].shape[3] = code.elementsOf(columns);
    manifest.caches[i].codeColumns = code.isPacked() ? columns : 0;
  }
  ir::Manifest grows = growing();
  for (ir::ManifestCache& cache : grows.caches)
    cache.shape[3] = columns;
  auto first = read(inColumns(grown, columns)), second = read(after);
  return first && second ? weakest(checkModels({*first, grows}, {*second, manifest})) : "";
}

TEST(CodedCache, BodiesOfAllCodes) {
  constexpr int64_t oneGroup = 8, twoGroups = 39;
  for (const auto& [code, columns] :
       {std::pair(&ir::int8Rows, oneGroup), std::pair(&ir::fourBitRows, oneGroup),
        std::pair(&ir::fourBitRows, twoGroups)})
    EXPECT_EQ(bodyVerdict(withBody(*code, columns), *code, columns),
              std::string("tested: node of 'attended' (ai.kvopt::InPlaceQuantizedKvSdpa): ") +
                  roundingGap)
        << code->word << " " << columns;
}

TEST(CodedCache, FaultsOfPackedCodesAreFound) {
  const std::string packed = withBody(ir::fourBitRows, 8);
  for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
           // halves of a byte exchanged, the values' scales, multipliers, and another offset
           {"Concat <axis = -1> (key_read_lower, key_read_upper)",
            "Concat <axis = -1> (key_read_upper, key_read_lower)"},
           {"keys = Mul (key_products, key_scales)", "keys = Mul (key_products, value_scales)"},
           {"Mul (value_read_codes, value_read_multipliers)",
            "Mul (value_read_codes, key_read_multipliers)"},
           {"key_bytes = Add (key_lower, key_upper_bits)",
            "key_bytes = Add (key_upper, key_upper_bits)"},
           {"largest_multiplier = Constant <value_float = 18.0>",
            "largest_multiplier = Constant <value_float = 17.0>"}}) {
    const std::string found = bodyVerdict(edited(packed, from, to), ir::fourBitRows, 8);
    EXPECT_EQ(found.substr(0, found.find(':')), "different") << to << "\n" << found;
  }
}

TEST(CodedCache, ScalesOfOtherAxesAreNotDecided) {
  ir::Manifest manifest = inCodes();
  manifest.caches[2].shape[2] = int64_t(1);
  EXPECT_EQ(codedVerdict(coded, manifest), "skipped: its rows are codes");
}

} // namespace
} // namespace kvopt::check
