// Pools of blocks: rows behind a table.
#include "check/caches/block_table.h"
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

constexpr int64_t blockSize = 4;

/// The attention of `grown` by ONNX Runtime's operator.
constexpr const char* paged = R"(<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[B, S, 8] inputs_embeds, float[N, 4, 1, 8] past_key, float[N, 4, 1, 8] past_value,
   int32[B] past_seqlens, int32[B, M] block_table)
  => (float[B, S, 8] rows_of_tokens, float[N, 4, 1, 8] present_key, float[N, 4, 1, 8] present_value)
<int64[1] one = {1}, int64[1] zero = {0}, int64 first = {0}, int64 next = {1},
 int64[2] packed_shape = {-1, 8}>
{
  packed = Reshape (inputs_embeds, packed_shape)
  shape = Shape (inputs_embeds)
  batch = Gather (shape, first)
  tokens = Gather (shape, next)
  end = Add (batch, next)
  rows = Range (first, end, next)
  starts = Mul (rows, tokens)
  lengths = Cast <to = 6> (starts)
  attended, present_key, present_value = com.microsoft.PagedAttention
    <num_heads = 1, kv_num_heads = 1, scale = 0.5>
    (packed, packed, packed, past_key, past_value, lengths, past_seqlens, block_table)
  rows_of_tokens = Reshape (attended, shape)
}
)";

/// The same in ONNX's operators: rows are gathered by their places.
constexpr const char* gathered = R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[B, S, 8] inputs_embeds, float[N, 4, 1, 8] past_key, float[N, 4, 1, 8] past_value,
   int32[B] past_seqlens, int32[B, M] block_table)
  => (float[B, S, 8] rows_of_tokens, float[N, 4, 1, 8] present_key, float[N, 4, 1, 8] present_value)
<int64[1] one = {1}, int64[1] all = {-1}, int64 first = {0}, int64 next = {1}, int64 size = {4},
 int64 back = {-1}, int64[2] flat = {-1, 8}, int64[2] column = {-1, 1}, float scale = {0.5}>
{
  shape = Shape (inputs_embeds)
  batch = Gather (shape, first)
  tokens = Gather (shape, next)
  table = Cast <to = 7> (block_table)
  pasts = Cast <to = 7> (past_seqlens)
  past = Reshape (pasts, column)
  added = Range (first, tokens, next)
  new_positions = Add (past, added)
  longest = ReduceMax <keepdims = 0> (past)
  total = Add (longest, tokens)
  line = Range (first, total, next)
  new_block_at = Div (new_positions, size)
  new_block = GatherElements <axis = 1> (table, new_block_at)
  new_offset = Mod (new_positions, size)
  new_start = Mul (new_block, size)
  new_slot = Add (new_start, new_offset)
  new_slots = Unsqueeze (new_slot, all)
  block_at = Div (line, size)
  block = Gather <axis = 1> (table, block_at)
  offset = Mod (line, size)
  start = Mul (block, size)
  slot = Add (start, offset)
  pool_shape = Shape (past_key)
  key_rows = Reshape (past_key, flat)
  value_rows = Reshape (past_value, flat)
  key_written = ScatterND (key_rows, new_slots, inputs_embeds)
  value_written = ScatterND (value_rows, new_slots, inputs_embeds)
  present_key = Reshape (key_written, pool_shape)
  present_value = Reshape (value_written, pool_shape)
  keys = Gather (key_written, slot)
  values = Gather (value_written, slot)
  turned = Transpose <perm = [0, 2, 1]> (keys)
  product = MatMul (inputs_embeds, turned)
  scores = Mul (product, scale)
  weights = Softmax <axis = -1> (scores)
  rows_of_tokens = MatMul (weights, values)
}
)";

ir::Manifest inPools() {
  ir::Manifest manifest = growing();
  manifest.contract = ir::CacheUpdate::InPlace;
  manifest.blockSize = blockSize;
  for (ir::ManifestCache& cache : manifest.caches) {
    cache.storage = ir::PoolCache{};
    cache.shape = {std::string("B"), std::string("C"), int64_t(1), int64_t(8)};
    cache.sequenceAxis = 1;
    cache.permutation = {0, 2, 1, 3};
  }
  manifest.lengths.push_back({"past_seqlens",
                              ir::ElementType::Int32,
                              {std::string("B")},
                              ir::LengthFeed::PastLengthPerBatch});
  manifest.lengths.push_back({"block_table",
                              ir::ElementType::Int32,
                              {std::string("B"), std::string("M")},
                              ir::LengthFeed::BlockTable});
  return manifest;
}

/// `grown` with causal attention, and a name of the output of its own.
std::string causalGrown() {
  return edited(edited(edited(grown, "float[B, 1, S, 8] attended", "float[B, S, 8] rows_of_tokens"),
                       "<int64[1] one = {1}, float scale = {0.5}>",
                       "<int64[1] one = {1}, float scale = {0.5}, int64 two = {2}, int64 first = "
                       "{0}, int64 next = {1}, float none = {0}, float hidden = {-inf}, int64[2] "
                       "column = {-1, 1}>"),
                "weights = Softmax <axis = -1> (scores)\n  attended = MatMul (weights, "
                "present_value)",
                R"(size = Shape (present_key)
  total = Gather (size, two)
  added = Shape (rows)
  tokens = Gather (added, two)
  keys = Range (first, total, next)
  count = Range (first, tokens, next)
  past = Sub (total, tokens)
  positions = Add (count, past)
  queries = Reshape (positions, column)
  is_later = Greater (keys, queries)
  mask = Where (is_later, hidden, none)
  masked = Add (scores, mask)
  weights = Softmax <axis = -1> (masked)
  attended = MatMul (weights, present_value)
  rows_of_tokens = Squeeze (attended, one))");
}

std::string pagedVerdict(const std::string& before, const std::string& after,
                         const ir::Manifest& manifest = inPools()) {
  auto first = read(before), second = read(after);
  if (!first || !second)
    return "";
  const ir::Manifest grows = growing();
  return weakest(checkModels({*first, grows}, {*second, manifest}));
}

std::string verdictWordOf(const std::string& text) { return text.substr(0, text.find(':')); }

std::string withPlainRows(std::string model) {
  return edited(
      edited(std::move(model), "float[B, 1, S, 8] attended", "float[B, S, 8] rows_of_tokens"),
      "attended = MatMul (weights, present_value)",
      "attended = MatMul (weights, present_value)\n  rows_of_tokens = Squeeze (attended, "
      "one)");
}

TEST(PagedCache, TheOperatorIsProved) {
  EXPECT_EQ(verdictWordOf(pagedVerdict(causalGrown(), paged)), "proved-reduced")
      << pagedVerdict(causalGrown(), paged);
}

/// The verdict about two models over pools.
std::string ofPools(const std::string& before, const std::string& after) {
  auto first = read(before), second = read(after);
  const ir::Manifest manifest = inPools(), other = inPools();
  return first && second ? weakest(checkModels({*first, manifest}, {*second, other})) : "";
}

TEST(PagedCache, OneOperandHoldsQueriesKeysAndValues) {
  const std::string joined =
      edited(edited(paged, "packed = Reshape (inputs_embeds, packed_shape)",
                    "row = Reshape (inputs_embeds, packed_shape)\n  doubled = Add (row, row)\n  "
                    "packed = Concat <axis = 1> (row, doubled, row)"),
             "(packed, packed, packed, past_key", "(packed, \"\", \"\", past_key");
  const std::string apart = edited(
      edited(paged, "packed = Reshape (inputs_embeds, packed_shape)",
             "packed = Reshape (inputs_embeds, packed_shape)\n  doubled = Add (packed, packed)"),
      "(packed, packed, packed, past_key", "(packed, doubled, packed, past_key");
  EXPECT_EQ(ofPools(apart, joined), "proved-reduced: ");
  EXPECT_EQ(verdictWordOf(ofPools(paged, joined)), "different");
}

TEST(PagedCache, TheOperatorRotatesByPositions) {
  std::string tables = "float[64, 4] cosines = {#}, float[64, 4] sines = {#}, int64[2] column = "
                       "{-1, 1}, int64[2] packed_shape";
  for (const int first : {1, 50}) {
    std::string numbers;
    for (int i = 0; i < 64 * 4; ++i)
      numbers += (i ? ", " : "") + std::to_string(first + i) + ".25";
    tables = edited(tables, "#", numbers);
  }
  const std::string withTables = edited(paged, "int64[2] packed_shape", tables);
  const std::string inside =
      edited(edited(withTables, "kv_num_heads = 1", "kv_num_heads = 1, do_rotary = 1"),
             "past_seqlens, block_table)\n  rows_of",
             "past_seqlens, block_table, cosines, sines)\n"
             "  rows_of");
  auto outside = [&](const char* position) {
    return edited(
        edited(withTables, "packed = Reshape (inputs_embeds, packed_shape)",
               std::string("packed = Reshape (inputs_embeds, packed_shape)\n  shape_of_tokens = "
                           "Shape (inputs_embeds)\n  count = Gather (shape_of_tokens, next)\n  "
                           "added = Range (first, count, next)\n  pasts = Cast <to = 7> "
                           "(past_seqlens)\n  past = Reshape (pasts, column)\n  ahead = Add (past, "
                           "next)\n  places = Add (") +
                   position +
                   ", added)\n  turned_rows = com.microsoft.RotaryEmbedding <num_heads = 1> "
                   "(inputs_embeds, places, cosines, sines)\n  turned = Reshape (turned_rows, "
                   "packed_shape)"),
        "(packed, packed, packed, past_key", "(turned, turned, packed, past_key");
  };
  EXPECT_EQ(ofPools(outside("past"), inside), "proved-reduced: ");
  EXPECT_EQ(verdictWordOf(ofPools(outside("ahead"), inside)), "different");
}

TEST(PagedCache, RowsByTheirPlacesAreProved) {
  const std::string found = pagedVerdict(withPlainRows(grown), gathered);
  EXPECT_EQ(verdictWordOf(found), "proved-reduced") << found;
}

/// Each change of a model is found.
void expectPagedFaults(const std::string& before, const std::string& after,
                       std::initializer_list<std::pair<const char*, const char*>> changes) {
  for (const auto& [from, to] : changes) {
    const std::string found = pagedVerdict(before, edited(after, from, to));
    EXPECT_EQ(verdictWordOf(found), "different") << to << "\n" << found;
  }
}

TEST(PagedCache, FaultsOfTheOperatorAreFound) {
  expectPagedFaults(
      causalGrown(), paged,
      {{"packed, packed, packed, past_key, past_value",
        "packed, packed, packed, past_value, past_key"},
       {"kv_num_heads = 1", "kv_num_heads = 1, local_window_size = 5"},
       {"kv_num_heads = 1", "kv_num_heads = 1, is_causal = 0"},
       {"lengths = Cast <to = 6> (starts)", // the tokens of a batch are those of the first row
        "all = Mul (batch, tokens)\n  zeros = Mul (rows, first)\n  same = Equal (rows, first)\n  "
        "ends = Where (same, zeros, all)\n  lengths = Cast <to = 6> (ends)"}});
}

TEST(PagedCache, FaultsOfPlacesAreFound) {
  expectPagedFaults(
      withPlainRows(grown), gathered,
      {{"block_at = Div (line, size)", // the block before
        "here = Div (line, size)\n  earlier = Sub (here, next)\n  block_at = Max (earlier, first)"},
       {"table = Cast <to = 7> (block_table)", // the blocks of another batch row
        "whole = Cast <to = 7> (block_table)\n  turn = Range (batch, first, back)\n  last = Sub "
        "(turn, next)\n  table = Gather (whole, last)"},
       {"line = Range (first, total, next)", // a row that no token wrote
        "more = Add (total, next)\n  line = Range (first, more, next)"},
       {"line = Range (first, total, next)", // the first row is not read
        "line = Range (next, total, next)"},
       {"keys = Gather (key_written, slot)", "keys = Gather (value_written, slot)"},
       {"new_positions = Add (past, added)", // rows one place later
        "later = Add (past, next)\n  new_positions = Add (later, added)"}});
}

TEST(PagedCache, BlocksOfOtherSequencesStay) {
  // Also writes the first new row of each batch row to block 0.
  const std::string written = edited(
      gathered, "new_slots = Unsqueeze (new_slot, all)",
      "own_slots = Unsqueeze (new_slot, all)\n  none = Mul (own_slots, first)\n  new_slots = "
      "Concat "
      "<axis = 1> (none, own_slots)\n  twice = Concat <axis = 1> (inputs_embeds, inputs_embeds)");
  const std::string both = edited(edited(written, "ScatterND (key_rows, new_slots, inputs_embeds)",
                                         "ScatterND (key_rows, new_slots, twice)"),
                                  "ScatterND (value_rows, new_slots, inputs_embeds)",
                                  "ScatterND (value_rows, new_slots, twice)");
  EXPECT_EQ(pagedVerdict(withPlainRows(grown), both),
            "different: a block of another sequence changes");
}

TEST(PagedCache, BlocksAreNotInOrder) {
  std::string failure;
  const auto table = BlockTable::of(inPools(), {2, 7, 2}, failure);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->blocks(), 2 * 3 + 2);
  std::vector<int64_t> all;
  for (int64_t row : {0, 1})
    for (int64_t index = 0; index < table->columns(); ++index)
      all.push_back(table->block(row, index));
  EXPECT_EQ(all, std::vector<int64_t>({5, 4, 1, 7, 6, 3, 2, 7}));
  EXPECT_EQ(table->slot(1, 5), 3 * blockSize + 1);
}

TEST(PagedCache, ATableWithoutRoomIsNotFed) {
  ir::Manifest manifest = inPools();
  manifest.lengths.back().shape[1] = int64_t(1);
  std::string failure;
  EXPECT_TRUE(BlockTable::of(manifest, {1, 3, 1}, failure));
  EXPECT_FALSE(BlockTable::of(manifest, {1, 4, 1}, failure));
  EXPECT_EQ(failure, "the table of blocks has no room for all tokens");
}

} // namespace
} // namespace kvopt::check
