// com.microsoft::PagedAttention: the bits of Sdpa over contiguous rows, and plain loops in double,
// whatever the blocks, their order and who shares them.
#include "tests/runtime/kernels/plain_attention.h"

#include <numeric>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

struct PagedCase {
  ElementType element = ElementType::Float;
  int64_t heads = 4, groups = 2, width = 8, blockSize = 4;
  std::vector<int64_t> past = {5, 0, 9}, added = {2, 3, 1};
  int64_t window = 0;
  double softcap = 0, scale = 0;
  bool sinks = false, packed = false, norms = false, slots = false, causal = true;
  int64_t pairs = 0; ///< that are rotated; 0: do_rotary is off
  int64_t offset = 0;
  bool interleaved = false;
  unsigned seed = 1;

  int64_t tokens() const { return std::accumulate(added.begin(), added.end(), int64_t{0}); }
  int64_t total(size_t b) const { return past[b] + added[b]; }
  int64_t blocksOf(int64_t positions) const { return (positions + blockSize - 1) / blockSize; }
};

TestTensor int32List(Extents shape, const std::vector<int64_t>& values) {
  TestTensor result(ElementType::Int32, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i)
    result.set(int64_t(i), double(values[i]));
  return result;
}

TestTensor pagedOutput(const KernelCall& call) {
  const KernelResult result = call.run();
  EXPECT_EQ(result.error, "");
  return result.outputs[0].clone();
}

/// A pool of blocks in which sequences are, in any order; what is wholly in the past may be
/// shared by several.
class PagedProblem {
public:
  explicit PagedProblem(const PagedCase& given) : c(given), random(given.seed) {
    const int64_t tokens = c.tokens();
    query = randomTensor(c.element, {tokens, c.heads * c.width}, c.seed * 8 + 1);
    key = randomTensor(c.element, {tokens, c.groups * c.width}, c.seed * 8 + 2);
    value = randomTensor(c.element, {tokens, c.groups * c.width}, c.seed * 8 + 3);
    cosine = randomTensor(c.element, {64, c.pairs}, c.seed * 8 + 4);
    sine = randomTensor(c.element, {64, c.pairs}, c.seed * 8 + 5);
    sink = randomTensor(c.element, {c.heads}, c.seed * 8 + 6);
    queryNorm = randomTensor(c.element, {c.width}, c.seed * 8 + 7);
    keyNorm = randomTensor(c.element, {c.width}, c.seed * 8);
    makeTable();
    const Extents pool{blocks, c.blockSize, c.groups, c.width};
    keyCache = randomTensor(c.element, pool, c.seed * 8 + 100);
    valueCache = randomTensor(c.element, pool, c.seed * 8 + 101);
    starts.push_back(0);
    for (int64_t count : c.added)
      starts.push_back(starts.back() + count);
  }
  PagedProblem(const PagedProblem&) = delete;

  KernelCall call() const {
    KernelCall result("com.microsoft::PagedAttention");
    if (c.packed) {
      TestTensor joined(c.element, {c.tokens(), (c.heads + 2 * c.groups) * c.width});
      int64_t to = 0;
      for (int64_t t = 0; t < c.tokens(); ++t)
        for (const TestTensor* part : {&query, &key, &value})
          for (int64_t i = 0; i < part->shape()[1]; ++i)
            joined.set(to++, part->get(t * part->shape()[1] + i));
      result.in(joined).absent().absent();
    } else {
      result.in(query).in(key).in(value);
    }
    result.in(keyCache).in(valueCache);
    const auto batches = int64_t(c.past.size());
    result.in(int32List({batches + 1}, starts)).in(int32List({batches}, c.past));
    result.in(int32List({batches, columns}, table));
    c.pairs != 0 ? result.in(cosine).in(sine) : result.absent().absent();
    c.slots ? result.in(int32List({c.tokens()}, slots())) : result.absent();
    c.sinks ? result.in(sink) : result.absent();
    c.norms ? result.in(queryNorm).in(keyNorm) : result.absent().absent();
    result.attr("num_heads", int(c.heads)).attr("kv_num_heads", int(c.groups));
    if (c.window != 0)
      result.attr("local_window_size", int(c.window));
    if (c.softcap != 0)
      result.attr("softcap", c.softcap);
    if (c.scale != 0)
      result.attr("scale", c.scale);
    if (!c.causal)
      result.attr("is_causal", 0);
    if (c.pairs != 0)
      result.attr("do_rotary", 1).attr("rotary_interleaved", int(c.interleaved));
    if (c.offset != 0)
      result.attr("rotary_offset", int(c.offset));
    result.results(3);
    return result;
  }

  int64_t slotOf(size_t b, int64_t position) const {
    return table[b * size_t(columns) + size_t(position / c.blockSize)] * c.blockSize +
           position % c.blockSize;
  }
  std::vector<int64_t> slots() const {
    std::vector<int64_t> result;
    for (size_t b = 0; b < c.past.size(); ++b)
      for (int64_t i = 0; i < c.added[b]; ++i)
        result.push_back(slotOf(b, c.past[b] + i));
    return result;
  }

  /// New rows as they are cached: [N,heads*D], normalized and rotated.
  TestTensor prepared(const TestTensor& rows, int64_t heads, const TestTensor& weights) const {
    TestTensor result = rows.clone();
    for (size_t b = 0; b < c.past.size(); ++b)
      for (int64_t i = 0; i < c.added[b]; ++i)
        for (int64_t h = 0; h < heads; ++h)
          prepareHead(result, ((starts[b] + i) * heads + h) * c.width, weights, c.past[b] + i);
    return result;
  }
  TestTensor preparedQuery() const { return prepared(query, c.heads, queryNorm); }
  TestTensor preparedKey() const { return prepared(key, c.groups, keyNorm); }

  /// A cache after the step.
  TestTensor updated(const TestTensor& cache, const TestTensor& rows) const {
    TestTensor result = cache.clone();
    const std::vector<int64_t> to = slots();
    const int64_t width = c.groups * c.width;
    for (size_t t = 0; t < to.size(); ++t)
      for (int64_t i = 0; i < width; ++i)
        result.set(to[t] * width + i, rows.get(int64_t(t) * width + i));
    return result;
  }

  /// Rows of one sequence, contiguous: [1,G,T,D].
  TestTensor gathered(const TestTensor& cache, size_t b) const {
    TestTensor rows(c.element, {1, c.groups, c.total(b), c.width});
    for (int64_t g = 0; g < c.groups; ++g)
      for (int64_t j = 0; j < c.total(b); ++j)
        for (int64_t d = 0; d < c.width; ++d)
          rows.set((g * c.total(b) + j) * c.width + d,
                   cache.get((slotOf(b, j) * c.groups + g) * c.width + d));
    return rows;
  }
  /// Queries of one sequence: [1,H,n,D].
  TestTensor queriesOf(const TestTensor& rows, size_t b) const {
    TestTensor result(c.element, {1, c.heads, c.added[b], c.width});
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.added[b]; ++i)
        for (int64_t d = 0; d < c.width; ++d)
          result.set((h * c.added[b] + i) * c.width + d,
                     rows.get(((starts[b] + i) * c.heads + h) * c.width + d));
    return result;
  }
  double scaleOf() const { return c.scale == 0 ? 1 / std::sqrt(double(c.width)) : c.scale; }

  const PagedCase c;
  TestTensor query, key, value, cosine, sine, sink, queryNorm, keyNorm, keyCache, valueCache;
  std::vector<int64_t> starts, table;
  int64_t columns = 0, blocks = 0;

private:
  void makeTable() {
    // Blocks that are written into are one sequence's; those before may be anything.
    int64_t written = 0;
    for (size_t b = 0; b < c.past.size(); ++b) {
      columns = std::max(columns, c.blocksOf(c.total(b)) + int64_t(b % 2));
      written += c.blocksOf(c.total(b)) - c.past[b] / c.blockSize;
    }
    const int64_t shared = 1 + columns;
    blocks = written + shared;
    std::vector<int64_t> order(size_t(blocks), 0);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    size_t own = size_t(shared);
    for (size_t b = 0; b < c.past.size(); ++b)
      for (int64_t j = 0; j < columns; ++j) {
        if (j < c.past[b] / c.blockSize && c.added[b] != 0)
          table.push_back(order[random() % size_t(shared)]);
        else if (j < c.blocksOf(c.total(b)) && c.added[b] != 0)
          table.push_back(order[own++]);
        else
          table.push_back(j % 2 == 0 ? -1 : 1 << 30); // of no use
      }
  }

  void prepareHead(TestTensor& rows, int64_t at, const TestTensor& weights,
                   int64_t position) const {
    if (c.norms) {
      double squares = 0;
      for (int64_t d = 0; d < c.width; ++d)
        squares += rows.get(at + d) * rows.get(at + d);
      const double root = std::sqrt(squares / double(c.width) + 1e-6);
      for (int64_t d = 0; d < c.width; ++d)
        rows.set(at + d, rows.get(at + d) / root * weights.get(d));
    }
    for (int64_t i = 0; i < c.pairs; ++i) {
      const int64_t first = at + c.offset + (c.interleaved ? 2 * i : i);
      const int64_t second = c.interleaved ? first + 1 : first + c.pairs;
      const double cos = cosine.get(position * c.pairs + i);
      const double sin = sine.get(position * c.pairs + i);
      const double x = rows.get(first);
      const double y = rows.get(second);
      rows.set(first, cos * x - sin * y);
      rows.set(second, sin * x + cos * y);
    }
  }

  std::mt19937 random;
};

void expectPlain(const PagedProblem& problem) {
  const PagedCase& c = problem.c;
  const KernelResult result = problem.call().threads(3).run();
  ASSERT_EQ(result.error, "");
  const double tolerance = attentionTolerance(c.element);
  const TestTensor keys = problem.updated(problem.keyCache, problem.preparedKey());
  const TestTensor values = problem.updated(problem.valueCache, problem.value);
  const bool isMoved = c.pairs == 0 && !c.norms;
  expectTensor(result, keys.shape(), keys.values(), isMoved ? 0 : tolerance, 1);
  expectTensor(result, values.shape(), values.values(), 0, 2);
  const TestTensor queries = problem.preparedQuery();
  std::vector<double> expected;
  for (size_t b = 0; b < c.past.size(); ++b) {
    if (c.added[b] == 0)
      continue;
    PlainAttention plain;
    plain.heads = c.heads;
    plain.groups = c.groups;
    plain.rows = c.added[b];
    plain.keys = c.total(b);
    plain.width = plain.valueWidth = c.width;
    plain.query = problem.queriesOf(queries, b).values();
    plain.key = problem.gathered(keys, b).values();
    plain.value = problem.gathered(values, b).values();
    plain.scale = problem.scaleOf();
    plain.softcap = c.softcap;
    if (c.sinks)
      plain.sinks = problem.sink.values();
    plain.bias = [&](int64_t, int64_t, int64_t i, int64_t j) {
      const int64_t position = c.past[b] + i;
      const bool isLater = c.causal && j > position;
      return isLater || (c.window != 0 && position - j >= c.window) ? minusInfinity : 0.0;
    };
    const std::vector<double> merged = plain.merged();
    expected.insert(expected.end(), merged.begin(), merged.end());
  }
  expectTensor(result, {c.tokens(), c.heads * c.width}, expected, tolerance);
}

/// What Sdpa computes of each sequence's rows in one piece has the same bits.
void expectSameBits(const PagedProblem& problem) {
  const PagedCase& c = problem.c;
  ASSERT_TRUE(c.pairs == 0 && !c.norms);
  const TestTensor found = pagedOutput(problem.call().threads(2));
  for (size_t b = 0; b < c.past.size(); ++b) {
    if (c.added[b] == 0)
      continue;
    KernelCall call("ai.kvopt::Sdpa");
    call.in(problem.queriesOf(problem.query, b));
    call.in(problem.gathered(problem.updated(problem.keyCache, problem.key), b));
    call.in(problem.gathered(problem.updated(problem.valueCache, problem.value), b)).absent();
    TestTensor sinks(ElementType::Float, {c.heads});
    for (int64_t h = 0; h < c.heads; ++h)
      sinks.set(h, problem.sink.get(h));
    if (c.sinks)
      call.in(sinks);
    const TestTensor whole = pagedOutput(call.attr("scale", problem.scaleOf())
                                             .attr("causal", int(c.causal))
                                             .attr("window", int(c.window))
                                             .attr("softcap", c.softcap));
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.added[b]; ++i)
        for (int64_t d = 0; d < c.width; ++d)
          ASSERT_EQ(found.get(((problem.starts[b] + i) * c.heads + h) * c.width + d),
                    whole.get((h * c.added[b] + i) * c.width + d))
              << "sequence " << b << " head " << h << " row " << i << " element " << d;
  }
}

TEST(PagedAttention, RaggedBatchesOfEveryElementType) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (int options = 0; options < 16; ++options) {
      SCOPED_TRACE(formatted("{} options {}", onnxName(element), options));
      PagedCase c;
      c.element = element;
      c.seed = unsigned(options + 1);
      c.packed = (options & 1) != 0;
      c.pairs = (options & 2) != 0 ? 4 - options % 3 : 0;
      c.interleaved = (options & 4) != 0;
      c.offset = c.pairs == 2 ? 3 : 0;
      c.sinks = (options & 8) != 0;
      c.window = options % 5;
      c.softcap = options % 3 == 0 ? 0 : 3;
      c.scale = options % 4 == 1 ? 0.6 : 0;
      c.slots = options % 2 == 0;
      expectPlain(PagedProblem(c));
    }
}

TEST(PagedAttention, RandomTablesAndBatches) {
  std::mt19937 random(11);
  const auto upTo = [&](int64_t most) { return int64_t(random() % unsigned(most + 1)); };
  for (unsigned trial = 0; trial < 120; ++trial) {
    SCOPED_TRACE(trial);
    PagedCase c;
    c.seed = trial + 1;
    c.element = std::array{ElementType::Float, ElementType::Float16,
                           ElementType::BFloat16}[size_t(upTo(2))];
    c.groups = 1 + upTo(2);
    c.heads = c.groups * (1 + upTo(3));
    c.width = std::array{1, 4, 8, 13, 16, 40}[size_t(upTo(5))];
    c.blockSize = std::array{1, 2, 3, 4, 16}[size_t(upTo(4))];
    const int64_t batches = upTo(4);
    c.past.clear();
    c.added.clear();
    for (int64_t b = 0; b < batches; ++b) {
      c.past.push_back(upTo(1) * upTo(37));
      c.added.push_back(upTo(1) == 0 ? 1 : upTo(9));
    }
    c.window = upTo(1) * upTo(7);
    c.softcap = double(upTo(1)) * 2.5;
    c.sinks = upTo(2) == 0;
    c.packed = upTo(2) == 0;
    c.slots = upTo(2) == 0;
    c.causal = upTo(4) != 0;
    expectSameBits(PagedProblem(c));
    c.pairs = c.width / 2 * upTo(1);
    c.interleaved = upTo(1) != 0;
    expectPlain(PagedProblem(c));
  }
}

TEST(PagedAttention, NormalizesHeadsBeforeTheRotation) {
  PagedCase c;
  c.norms = true;
  for (int64_t pairs : {0, 4}) {
    c.pairs = pairs;
    expectPlain(PagedProblem(c));
  }
}

/// Long pasts, of which attention reads tiles that several blocks share.
TEST(PagedAttention, LongPasts) {
  for (int64_t blockSize : {1, 16, 32, 300}) {
    SCOPED_TRACE(blockSize);
    PagedCase c;
    c.blockSize = blockSize;
    c.past = {290, 17, 128, 0};
    c.added = {1, 40, 1, 7};
    c.width = 16;
    expectSameBits(PagedProblem(c));
    c.window = 100;
    expectSameBits(PagedProblem(c));
  }
}

TEST(PagedAttention, OverwritesTheNewSlotsOnly) {
  PagedCase c;
  const PagedProblem problem(c);
  const TestTensor keys = problem.keyCache.clone();
  const TestTensor values = problem.valueCache.clone();
  const KernelResult result = problem.call().overwrite(3, keys).overwrite(4, values).run();
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(result.cacheBytesWritten, 2 * 6 * 2 * 8 * 4);
  EXPECT_EQ(keys.values(), problem.updated(problem.keyCache, problem.key).values());
  EXPECT_EQ(values.values(), problem.updated(problem.valueCache, problem.value).values());
}

/// A row that goes nowhere leaves what its slot held, which its query then sees.
TEST(PagedAttention, DropsRowsOfSlotMinusOne) {
  PagedCase c;
  c.past = {6};
  c.added = {2};
  const PagedProblem problem(c);
  std::vector<int64_t> slots = problem.slots();
  slots[1] = -1;
  KernelCall dropped("com.microsoft::PagedAttention");
  dropped.in(problem.query).in(problem.key).in(problem.value).in(problem.keyCache);
  dropped.in(problem.valueCache).in(int32List({2}, problem.starts)).in(int32List({1}, c.past));
  dropped.in(int32List({1, problem.columns}, problem.table)).absent().absent();
  dropped.in(int32List({2}, slots)).attr("num_heads", 4).attr("kv_num_heads", 2).results(3);
  const KernelResult result = dropped.run();
  ASSERT_EQ(result.error, "");
  TestTensor keys = problem.keyCache.clone();
  for (int64_t i = 0; i < 16; ++i)
    keys.set(slots[0] * 16 + i, problem.key.get(i));
  EXPECT_TRUE(result.outputs[1].sameBytes(keys));
  KernelCall sdpa("ai.kvopt::Sdpa");
  sdpa.in(problem.queriesOf(problem.query, 0)).in(problem.gathered(result.outputs[1], 0));
  sdpa.in(problem.gathered(result.outputs[2], 0)).attr("scale", problem.scaleOf());
  const TestTensor whole = pagedOutput(sdpa.attr("causal", 1));
  for (int64_t h = 0; h < 4; ++h)
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t d = 0; d < 8; ++d)
        EXPECT_EQ(result.outputs[0].get((i * 4 + h) * 8 + d), whole.get((h * 2 + i) * 8 + d));
}

TEST(PagedAttention, NothingNew) {
  PagedCase c;
  c.added = {0, 0, 0};
  expectPlain(PagedProblem(c));
  c.past = c.added = {};
  expectPlain(PagedProblem(c));
}

/// What is changed of a call that would succeed, and what the error says.
struct PagedRefusal {
  const char* says;
  std::function<void(KernelCall&)> change;
};

TEST(PagedAttention, RefusesBeforeAnythingIsWritten) {
  PagedCase c;
  c.pairs = 4;
  c.sinks = true;
  const PagedProblem problem(c);
  const auto shape = Extents{3, problem.columns};
  const auto withBlock = [&](size_t index, int64_t block) {
    std::vector<int64_t> table = problem.table;
    table[index] = block;
    return int32List(shape, table);
  };
  const auto columns = size_t(problem.columns);
  const PagedRefusal refusals[] = {
      {"block_table names block -1 for position 4 of sequence 0",
       [&](KernelCall& call) { call.replace(7, withBlock(1, -1)); }},
      {"block_table names block 1000000000 for position 0 of sequence 1",
       [&](KernelCall& call) { call.replace(7, withBlock(columns, 1000000000)); }},
      {"block_table names block",
       [&](KernelCall& call) { call.replace(7, withBlock(2 * columns + 2, problem.blocks)); }},
      {"two new tokens go to slot",
       [&](KernelCall& call) { call.replace(7, withBlock(columns, problem.table[1])); }},
      {"room for",
       [&](KernelCall& call) {
         call.replace(6, int32List({3}, {5, 0, 2000000000}));
       }},
      {"past_seqlens -1",
       [&](KernelCall& call) {
         call.replace(6, int32List({3}, {-1, 0, 9}));
       }},
      {"past_seqlens [B]",
       [&](KernelCall& call) {
         call.replace(6, int32List({2}, {5, 0}));
       }},
      {"cumulative_sequence_length goes from 0 to 5",
       [&](KernelCall& call) {
         call.replace(5, int32List({4}, {0, 2, 5, 5}));
       }},
      {"cumulative_sequence_length goes from 1 to 6",
       [&](KernelCall& call) {
         call.replace(5, int32List({4}, {1, 2, 5, 6}));
       }},
      {"-1 new tokens",
       [&](KernelCall& call) {
         call.replace(5, int32List({4}, {0, 2, 1, 6}));
       }},
      {"slot_mapping names slot -2",
       [&](KernelCall& call) {
         call.replace(10, int32List({6}, {0, 1, 2, 3, 4, -2}));
       }},
      {"slot_mapping names slot 1000000",
       [&](KernelCall& call) {
         call.replace(10, int32List({6}, {0, 1, 2, 3, 4, 1000000}));
       }},
      {"two new tokens go to slot 3",
       [&](KernelCall& call) {
         call.replace(10, int32List({6}, {3, 1, 2, 3, 4, 5}));
       }},
      {"slot_mapping must be [N]",
       [&](KernelCall& call) {
         call.replace(10, int32List({2}, {0, 1}));
       }},
      {"position 9 is outside",
       [&](KernelCall& call) {
         call.replace(8, randomTensor(c.element, {9, 4}, 1));
         call.replace(9, randomTensor(c.element, {9, 4}, 1));
       }},
      {"head_sink", [&](KernelCall& call) { call.replace(11, randomTensor(c.element, {3}, 1)); }},
      {"local_window_size of 0", [&](KernelCall& call) { call.attr("local_window_size", 0); }},
      {"is_causal 2", [&](KernelCall& call) { call.attr("is_causal", 2); }},
      {"kv_cache_layout LATENT", [&](KernelCall& call) { call.attr("kv_cache_layout", "LATENT"); }},
      {"v_head_size 8", [&](KernelCall& call) { call.attr("v_head_size", 8); }},
      {"k_quant_type", [&](KernelCall& call) { call.attr("k_quant_type", "PER_TENSOR"); }},
      {"k_cache_dtype int4", [&](KernelCall& call) { call.attr("k_cache_dtype", "int4"); }},
      {"rotary_offset 9", [&](KernelCall& call) { call.attr("rotary_offset", 9); }},
      {"num_heads 3", [&](KernelCall& call) { call.attr("num_heads", 3); }},
      {"key and value must be",
       [&](KernelCall& call) {
         call.replace(1, randomTensor(c.element, {6, 8}, 1));
       }},
      {"of one element type",
       [&](KernelCall& call) {
         call.replace(1, randomTensor(ElementType::Float16, {6, 16}, 1));
       }},
      {"key_cache and value_cache must be",
       [&](KernelCall& call) {
         call.replace(3, randomTensor(c.element, {2, 4, 2, 9}, 1));
       }},
      {"key_cache_out and value_cache_out are not read", [&](KernelCall& call) { call.unread(2); }},
  };
  for (const PagedRefusal& refusal : refusals) {
    SCOPED_TRACE(refusal.says);
    const TestTensor keys = problem.keyCache.clone();
    const TestTensor values = problem.valueCache.clone();
    KernelCall call = problem.call();
    call.overwrite(3, keys).overwrite(4, values);
    refusal.change(call);
    expectError(call.run(), refusal.says);
    EXPECT_TRUE(keys.sameBytes(problem.keyCache));
    EXPECT_TRUE(values.sameBytes(problem.valueCache));
  }
}

} // namespace
} // namespace kvopt
