// LinearAttention (opset 27, and com.microsoft): attention with a state S [d_k,d_v] per key/value
// head that does not grow. For every token t, with the rows q_t, k_t [d_k] and v_t [d_v] of a head:
//
//   S_t = exp(g_t) * S_{t-1} + k_t (x) u_t       g_t: decay, per key dimension or per head
//   o_t = scale * q_t^T S_t                      scale: 1 / sqrt(d_k) where it is 0 or absent
//
//   update_rule   linear, gated         u_t = v_t
//                 delta, gated_delta    u_t = beta_t * (v_t - (exp(g_t) * S_{t-1})^T k_t)
//
// linear and delta have no decay (exp(g_t) = 1), linear and gated have no beta. Query head h reads
// the state of head h / (q_num_heads / kv_num_heads). Operands are [B,T,heads * width], states are
// [B,kv_num_heads,d_k,d_v]; without past_state, S_0 is 0. Computed in f32. chunk_size does not
// affect the result. com.microsoft's operator with more states than query heads, or with a
// state_window, is not supported.
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/float_operand.h"

#include <algorithm>
#include <cmath>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

struct Rule {
  bool gated = false;
  bool delta = false;
};

llvm::Expected<Rule> ruleOf(const KernelContext& context) {
  const llvm::StringRef name = context.node().stringAttr("update_rule", "gated_delta");
  const Rule rule{name == "gated" || name == "gated_delta",
                  name == "delta" || name == "gated_delta"};
  if (name != "linear" && !rule.gated && !rule.delta)
    return context.error(formatted("update_rule '{}' is unknown", name.str()));
  if (rule.gated != context.has(4))
    return context.error(
        formatted("update_rule '{}' {} decay", name.str(), rule.gated ? "needs" : "does not take"));
  if (rule.delta != context.has(5))
    return context.error(
        formatted("update_rule '{}' {} beta", name.str(), rule.delta ? "needs" : "does not take"));
  return rule;
}

struct LinearSizes {
  int64_t batches = 0, tokens = 0;
  int64_t heads = 0, groups = 0;
  int64_t keyWidth = 0, valueWidth = 0;
  int64_t decayWidth = 0; ///< keyWidth, or 1 for a decay per head; 0 without decay
  int64_t betas = 0;      ///< number of betas: groups or 1; 0 without beta
};

llvm::Expected<LinearSizes> linearSizesOf(const KernelContext& context) {
  const Node& node = context.node();
  LinearSizes sizes;
  sizes.heads = node.intAttr("q_num_heads", 0);
  sizes.groups = node.intAttr("kv_num_heads", 0);
  if (sizes.heads < 1 || sizes.groups < 1 || sizes.heads % sizes.groups != 0)
    return context.error(
        formatted("q_num_heads = {} is not a positive multiple of kv_num_heads = {}", sizes.heads,
                  sizes.groups));
  const Extents& query = context.in(0).shape;
  for (unsigned operand : {0u, 1u, 2u, 4u, 5u})
    if (const TensorView* view = context.input(operand)) {
      if (view->element != context.in(0).element)
        return context.error(formatted("operand {} is of another element type", operand));
      if (view->rank() != 3 || view->shape[0] != query[0] || view->shape[1] != query[1])
        return context.error(formatted(
            "operand {} is not of rank 3 with the query's batch size and length", operand));
    }
  sizes.batches = query[0];
  sizes.tokens = query[1];
  const int64_t key = context.in(1).shape[2];
  const int64_t value = context.in(2).shape[2];
  sizes.keyWidth = query[2] / sizes.heads;
  sizes.valueWidth = value / sizes.groups;
  if (query[2] % sizes.heads != 0 || key % sizes.groups != 0 || value % sizes.groups != 0 ||
      key / sizes.groups != sizes.keyWidth)
    return context.error(formatted("last extents {}, {} and {} of query, key and value do not "
                                   "divide into {} and {} heads of one width",
                                   query[2], key, value, sizes.heads, sizes.groups));
  if (sizes.keyWidth == 0)
    return context.error("a head width of 0 is not supported");
  if (const TensorView* decay = context.input(4)) {
    sizes.decayWidth = decay->shape[2] == sizes.groups ? 1 : sizes.keyWidth;
    if (decay->shape[2] % sizes.groups != 0 || decay->shape[2] / sizes.groups != sizes.decayWidth)
      return context.error(formatted("{} decays for {} heads of width {}", decay->shape[2],
                                     sizes.groups, sizes.keyWidth));
  }
  if (const TensorView* beta = context.input(5)) {
    sizes.betas = beta->shape[2];
    if (sizes.betas != sizes.groups && sizes.betas != 1)
      return context.error(formatted("{} betas for {} heads", sizes.betas, sizes.groups));
  }
  const Extents state{sizes.batches, sizes.groups, sizes.keyWidth, sizes.valueWidth};
  if (const TensorView* past = context.input(3); past && past->shape != state)
    return context.error("the past state is not [B, kv_num_heads, d_k, d_v]");
  return sizes;
}

/// Operands and results in f32.
struct Recurrence {
  LinearSizes sizes;
  Rule rule;
  float scale = 1;
  const float* query = nullptr;
  const float* key = nullptr;
  const float* value = nullptr;
  const float* decay = nullptr;
  const float* beta = nullptr;
  float* state = nullptr;  ///< S_0, and S_T at the end
  float* update = nullptr; ///< [B,kv_num_heads,d_v], temporary
  float* output = nullptr; ///< initially zero

  /// Processes all tokens of one key/value head of one batch row.
  void run(int64_t batch, int64_t group) const {
    const int64_t width = sizes.valueWidth;
    const int64_t plane = batch * sizes.groups + group;
    float* s = state + plane * sizes.keyWidth * width;
    float* u = update + plane * width;
    for (int64_t t = 0; t < sizes.tokens; ++t) {
      const int64_t token = batch * sizes.tokens + t;
      const float* k = key + (token * sizes.groups + group) * sizes.keyWidth;
      const float* v = value + (token * sizes.groups + group) * width;
      if (rule.gated)
        decayState(s, decay + (token * sizes.groups + group) * sizes.decayWidth);
      std::copy_n(v, width, u);
      if (rule.delta)
        correct(s, k, beta[token * sizes.betas + (sizes.betas == 1 ? 0 : group)], u);
      const int64_t shared = sizes.heads / sizes.groups;
      for (int64_t i = 0; i < sizes.keyWidth; ++i) {
        float* row = s + i * width;
        for (int64_t j = 0; j < width; ++j)
          row[j] += k[i] * u[j];
        for (int64_t head = group * shared; head < (group + 1) * shared; ++head) {
          const int64_t place = token * sizes.heads + head;
          const float q = query[place * sizes.keyWidth + i];
          for (int64_t j = 0; j < width; ++j)
            output[place * width + j] += q * row[j];
        }
      }
      for (int64_t head = group * shared; head < (group + 1) * shared; ++head)
        for (int64_t j = 0; j < width; ++j)
          output[(token * sizes.heads + head) * width + j] *= scale;
    }
  }

private:
  void decayState(float* s, const float* decays) const {
    for (int64_t i = 0; i < sizes.keyWidth; ++i) {
      const float factor = std::exp(decays[sizes.decayWidth == 1 ? 0 : i]);
      for (int64_t j = 0; j < sizes.valueWidth; ++j)
        s[i * sizes.valueWidth + j] *= factor;
    }
  }

  /// u = rate * (u - s^T k)
  void correct(const float* s, const float* k, float rate, float* u) const {
    for (int64_t i = 0; i < sizes.keyWidth; ++i)
      for (int64_t j = 0; j < sizes.valueWidth; ++j)
        u[j] -= k[i] * s[i * sizes.valueWidth + j];
    for (int64_t j = 0; j < sizes.valueWidth; ++j)
      u[j] *= rate;
  }
};

llvm::Error linearAttention(KernelContext& context) {
  if (const int64_t window = context.node().intAttr("state_window", 0); window != 0)
    return context.error(formatted("state_window = {} is not supported", window));
  auto rule = ruleOf(context);
  if (!rule)
    return rule.takeError();
  auto sizes = linearSizesOf(context);
  if (!sizes)
    return sizes.takeError();
  Recurrence recurrence;
  recurrence.sizes = *sizes;
  recurrence.rule = *rule;
  recurrence.scale = context.node().floatAttr("scale", 0.0f);
  if (recurrence.scale == 0.0f)
    recurrence.scale = 1.0f / std::sqrt(static_cast<float>(sizes->keyWidth));
  const std::pair<unsigned, const float**> operands[] = {{0, &recurrence.query},
                                                         {1, &recurrence.key},
                                                         {2, &recurrence.value},
                                                         {4, &recurrence.decay},
                                                         {5, &recurrence.beta}};
  for (const auto& [operand, floats] : operands)
    if (context.has(operand)) {
      auto converted = floatsOf(context, context.in(operand));
      if (!converted)
        return converted.takeError();
      *floats = *converted;
    }
  const TensorView* past = context.input(3);
  const float* initial = nullptr;
  if (past) {
    auto converted = floatsOf(context, *past);
    if (!converted)
      return converted.takeError();
    initial = *converted;
  }
  const Extents shape{sizes->batches, sizes->groups, sizes->keyWidth, sizes->valueWidth};
  auto count = checkedElementCount(shape);
  if (!count)
    return context.error(llvm::toString(count.takeError()));
  int64_t width = 0;
  if (__builtin_mul_overflow(sizes->heads, sizes->valueWidth, &width))
    return context.error("the result is too large");
  auto output = context.output(0, context.in(0).element, {sizes->batches, sizes->tokens, width});
  if (!output)
    return output.takeError();
  std::optional<TensorView> present;
  if (context.wants(1)) {
    auto given = context.output(1, past ? past->element : context.in(0).element, shape);
    if (!given)
      return given.takeError();
    present = *given;
  }
  auto state = present ? floatResult(context, *present) : floatScratch(context, *count);
  if (!state)
    return state.takeError();
  auto update = floatScratch(context, *count / sizes->keyWidth);
  if (!update)
    return update.takeError();
  auto out = floatResult(context, *output);
  if (!out)
    return out.takeError();
  recurrence.state = *state;
  recurrence.update = *update;
  recurrence.output = *out;
  if (initial)
    std::copy_n(initial, *count, *state);
  else
    std::fill_n(*state, *count, 0.0f);
  std::fill_n(*out, output->elementCount(), 0.0f);
  if (output->elementCount() != 0)
    context.parallelFor(sizes->batches * sizes->groups, [&](int64_t unit) {
      recurrence.run(unit / sizes->groups, unit % sizes->groups);
    });
  storeFloats(*out, *output);
  if (present)
    storeFloats(*state, *present);
  return llvm::Error::success();
}

} // namespace

void register_linear_attention(KernelRegistry& registry) {
  registry.add("LinearAttention", 27, linearAttention);
  registry.add("com.microsoft::LinearAttention", 1, linearAttention);
}

} // namespace kvopt::kernels
