// LinearAttention against its recurrence in double: rules, heads, states, element types, refusals.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

struct LinearCase {
  std::string rule = "gated_delta";
  int64_t batches = 2, tokens = 3, heads = 4, groups = 2, width = 5, valueWidth = 3;
  bool hasPast = true, perHeadDecay = false, sharedBeta = false;
  double scale = 0;
  ElementType element = ElementType::Float;
  ElementType state = ElementType::Float;

  bool gated() const { return rule.starts_with("gated"); }
  bool delta() const { return rule.ends_with("delta"); }
};

struct LinearProblem {
  explicit LinearProblem(const LinearCase& given) : c(given) {
    auto packed = [&](int64_t width, unsigned seed) {
      return randomTensor(c.element, {c.batches, c.tokens, width}, seed);
    };
    query = packed(c.heads * c.width, 1);
    key = packed(c.groups * c.width, 2);
    value = packed(c.groups * c.valueWidth, 3);
    past = randomTensor(c.state, {c.batches, c.groups, c.width, c.valueWidth}, 4);
    decay = packed(c.groups * (c.perHeadDecay ? 1 : c.width), 5);
    beta = packed(c.sharedBeta ? 1 : c.groups, 6);
    compute();
  }

  KernelCall call(const char* op = "LinearAttention") const {
    KernelCall result(op, 27);
    result.in(query).in(key).in(value);
    c.hasPast ? result.in(past) : result.absent();
    c.gated() ? result.in(decay) : result.absent();
    c.delta() ? result.in(beta) : result.absent();
    result.attr("q_num_heads", int(c.heads)).attr("kv_num_heads", int(c.groups));
    result.attr("update_rule", c.rule.c_str()).results(2);
    if (c.scale != 0)
      result.attr("scale", c.scale);
    return result;
  }

  void compute() {
    const double scale = c.scale == 0 ? 1 / std::sqrt(double(c.width)) : c.scale;
    state.assign(size_t(c.batches * c.groups * c.width * c.valueWidth), 0);
    if (c.hasPast)
      state = past.values();
    output.assign(size_t(c.batches * c.tokens * c.heads * c.valueWidth), 0);
    for (int64_t b = 0; b < c.batches; ++b)
      for (int64_t g = 0; g < c.groups; ++g)
        for (int64_t t = 0; t < c.tokens; ++t)
          step(b, g, t, &state[size_t((b * c.groups + g) * c.width * c.valueWidth)], scale);
  }

  void step(int64_t b, int64_t g, int64_t t, double* s, double scale) {
    const int64_t token = b * c.tokens + t;
    const int64_t row = token * c.groups + g;
    for (int64_t i = 0; c.gated() && i < c.width; ++i)
      for (int64_t j = 0; j < c.valueWidth; ++j)
        s[i * c.valueWidth + j] *= std::exp(decay.get(c.perHeadDecay ? row : row * c.width + i));
    std::vector<double> update;
    for (int64_t j = 0; j < c.valueWidth; ++j) {
      double read = 0;
      for (int64_t i = 0; i < c.width; ++i)
        read += s[i * c.valueWidth + j] * key.get(row * c.width + i);
      const double v = value.get(row * c.valueWidth + j);
      update.push_back(c.delta() ? beta.get(c.sharedBeta ? token : row) * (v - read) : v);
    }
    for (int64_t i = 0; i < c.width; ++i)
      for (int64_t j = 0; j < c.valueWidth; ++j)
        s[i * c.valueWidth + j] += key.get(row * c.width + i) * update[size_t(j)];
    const int64_t shared = c.heads / c.groups;
    for (int64_t h = g * shared; h < (g + 1) * shared; ++h)
      for (int64_t j = 0; j < c.valueWidth; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < c.width; ++i)
          sum += query.get((token * c.heads + h) * c.width + i) * s[i * c.valueWidth + j];
        output[size_t((token * c.heads + h) * c.valueWidth + j)] = scale * sum;
      }
  }

  void expect(const KernelResult& result) const {
    auto toleranceOf = [](ElementType element) {
      return element == ElementType::Float ? 1e-5 : element == ElementType::Float16 ? 1e-2 : 8e-2;
    };
    expectTensor(result, {c.batches, c.tokens, c.heads * c.valueWidth}, output,
                 toleranceOf(c.element));
    expectTensor(result, {c.batches, c.groups, c.width, c.valueWidth}, state,
                 toleranceOf(c.hasPast ? c.state : c.element), 1);
    EXPECT_EQ(result.outputs[1].element(), c.hasPast ? c.state : c.element);
  }

  const LinearCase c;
  TestTensor query, key, value, past, decay, beta;
  std::vector<double> output, state;
};

TEST(LinearAttention, RulesHeadsAndStates) {
  for (const char* rule : {"linear", "gated", "delta", "gated_delta"})
    for (int64_t heads : {2, 6})
      for (int64_t tokens : {1, 4})
        for (bool hasPast : {false, true})
          for (bool perHead : {false, true}) {
            SCOPED_TRACE(formatted("{} heads {} tokens {} past {} per head {}", rule, heads, tokens,
                                   hasPast, perHead));
            LinearCase c;
            c.rule = rule;
            c.heads = heads;
            c.tokens = tokens;
            c.hasPast = hasPast;
            c.perHeadDecay = c.sharedBeta = perHead;
            const LinearProblem problem(c);
            problem.expect(problem.call().threads(3).run());
          }
}

TEST(LinearAttention, ElementTypesOfOperandsAndStates) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (ElementType state : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
      for (bool hasPast : {false, true}) {
        LinearCase c;
        c.element = element;
        c.state = state;
        c.hasPast = hasPast;
        c.scale = 0.3;
        const LinearProblem problem(c);
        problem.expect(problem.call().run());
      }
}

TEST(LinearAttention, NoTokensKeepTheState) {
  LinearCase c;
  c.tokens = 0;
  const LinearProblem problem(c);
  problem.expect(problem.call().run());
}

/// The state after some tokens, fed back, gives what all tokens at once give.
TEST(LinearAttention, StatesContinue) {
  LinearCase c;
  c.batches = 1;
  c.tokens = 4;
  const LinearProblem whole(c);
  TestTensor state = whole.past;
  for (int64_t t = 0; t < c.tokens; ++t) {
    auto row = [&](const TestTensor& all) {
      const int64_t width = all.shape()[2];
      TestTensor part(all.element(), {1, 1, width});
      for (int64_t i = 0; i < width; ++i)
        part.set(i, all.get(t * width + i));
      return part;
    };
    const KernelResult result = KernelCall("LinearAttention", 27)
                                    .in(row(whole.query))
                                    .in(row(whole.key))
                                    .in(row(whole.value))
                                    .in(state)
                                    .in(row(whole.decay))
                                    .in(row(whole.beta))
                                    .attr("q_num_heads", int(c.heads))
                                    .attr("kv_num_heads", int(c.groups))
                                    .results(2)
                                    .run();
    ASSERT_EQ(result.error, "");
    state = result.outputs[1];
  }
  for (int64_t i = 0; i < state.count(); ++i)
    EXPECT_NEAR(state.get(i), whole.state[size_t(i)], 1e-5);
}

TEST(LinearAttention, OfOnnxRuntime) {
  const LinearProblem problem{LinearCase()};
  const char* op = "com.microsoft::LinearAttention";
  problem.expect(problem.call(op).attr("chunk_size", 8).attr("state_window", 0).run());
  expectError(problem.call(op).attr("state_window", 2).run(), "state_window = 2");
  expectError(problem.call(op).attr("q_num_heads", 1).run(), "not a positive multiple");
}

TEST(LinearAttention, Refuses) {
  const LinearProblem problem{LinearCase()};
  auto refused = [&](unsigned operand, const TestTensor& tensor, const char* text) {
    expectError(problem.call().overwrite(operand, tensor).run(), text);
  };
  expectError(problem.call().attr("update_rule", "cubic").run(), "'cubic' is unknown");
  expectError(problem.call().attr("update_rule", "delta").run(), "does not take decay");
  expectError(problem.call().attr("update_rule", "gated").run(), "does not take beta");
  expectError(problem.call().attr("kv_num_heads", 3).run(), "not a positive multiple");
  expectError(problem.call().attr("q_num_heads", 0).run(), "not a positive multiple");
  refused(1, floats({2, 3, 8}, std::vector<double>(48, 0)), "of one width");
  refused(1, floats({2, 2, 10}, std::vector<double>(40, 0)), "batch size and length");
  refused(3, floats({2, 2, 3, 5}, std::vector<double>(60, 0)), "past state");
  refused(4, floats({2, 3, 4}, std::vector<double>(24, 0)), "4 decays");
  refused(5, floats({2, 3, 4}, std::vector<double>(24, 0)), "4 betas");
  refused(5, TestTensor(ElementType::Float16, {2, 3, 2}), "another element type");
}

} // namespace
} // namespace kvopt
