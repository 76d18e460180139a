// com.microsoft::Attention: the projections of query, key and value, and attention.
//
//   [Q K V] [B,S,Nq+Nk+Nv] = input [B,S,N] weights [N,Nq+Nk+Nv] + bias
//   output [B,S,Nv] = softmax(scale * Q K'^T + masks) V'       (formula: AttentionView)
//
// The widths are qkv_hidden_sizes, or each a third of the weights' columns. K' and V' are the rows
// of past [2,B,H,P,D] (keys, then values), followed by the new ones; present holds both in the same
// layout. For mask_index, attention_bias and unidirectional, see PaddingMaskRequest.
#include "runtime/attention/attention_heads.h"
#include "runtime/attention/masked_attention.h"
#include "runtime/kernels/support/blas.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "support/format.h"

#include <algorithm>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

enum Operand : unsigned { Input, Weights, Bias, MaskIndex, Past, AttentionBias, PastLength };

struct Widths {
  int64_t query = 0, key = 0, value = 0;
};

llvm::Expected<Widths> widthsOf(const KernelContext& context, int64_t columns, int64_t heads) {
  Widths widths{columns / 3, columns / 3, columns / 3};
  if (auto given = context.node().intsAttr("qkv_hidden_sizes")) {
    if (given->size() != 3)
      return context.error("qkv_hidden_sizes must be three numbers");
    widths = {(*given)[0], (*given)[1], (*given)[2]};
  }
  for (int64_t width : {widths.query, widths.key, widths.value})
    if (width <= 0 || width > columns || width % heads != 0)
      return context.error(formatted("a width of {} does not split into {} heads", width, heads));
  if (widths.query + widths.key + widths.value != columns)
    return context.error("the widths of query, key and value are not those of the weights");
  return widths;
}

/// Projections [B,S,columns] with the input's element type.
llvm::Expected<TensorView> projections(KernelContext& context) {
  const TensorView& input = context.in(Input);
  const TensorView& weights = context.in(Weights);
  const int64_t columns = weights.shape[1];
  if (context.has(Bias) && context.in(Bias).elementCount() != columns)
    return context.error("the bias has another width than the weights");
  auto a = floatsOf(context, input);
  if (!a)
    return a.takeError();
  auto b = floatsOf(context, weights);
  if (!b)
    return b.takeError();
  auto projected = scratchTensor(context, input.element, {input.shape[0], input.shape[1], columns});
  if (!projected)
    return projected;
  auto c = floatResult(context, *projected);
  if (!c)
    return c.takeError();
  MatrixProduct product;
  product.m = input.shape[0] * input.shape[1];
  product.n = columns;
  product.k = input.shape[2];
  product.a = *a;
  product.lda = std::max<int64_t>(product.k, 1);
  product.b = *b;
  product.ldb = product.ldc = std::max<int64_t>(columns, 1);
  product.c = *c;
  if (!blasFits(product))
    return context.error("extents beyond 32 bits");
  if (projected->elementCount() == 0)
    return projected;
  if (context.has(Bias)) {
    auto bias = floatsOf(context, context.in(Bias));
    if (!bias)
      return bias.takeError();
    for (int64_t row = 0; row < product.m; ++row)
      std::copy_n(*bias, columns, *c + row * columns);
    product.beta = 1.0f;
  }
  multiply(product);
  storeFloats(*c, *projected);
  return projected;
}

/// Part 0 (keys) or 1 (values) of [2,B,H,P,D].
TensorView stacked(const TensorView& tensor, int64_t part) {
  TensorView view = slicedAxis(tensor, 0, part, 1);
  view.shape.erase(view.shape.begin());
  view.strides.erase(view.strides.begin());
  return view;
}

/// Prepends the past to key and value, which are stacked in result 1.
llvm::Error appendToPast(KernelContext& context, MaskedAttention& attention) {
  const TensorView* past = context.input(Past);
  if (!past && !context.wants(1))
    return llvm::Error::success();
  const Extents shape = attention.key.shape;
  if (attention.value.shape[3] != shape[3])
    return context.error("a past holds keys and values of one width");
  int64_t pastRows = 0;
  if (past) {
    if (past->rank() != 5 || past->element != attention.key.element ||
        past->shape != Extents{2, shape[0], shape[1], past->shape[3], shape[3]})
      return context.error("past must be [2,B,H,P,D] of the input's element type");
    pastRows = past->shape[3];
  }
  int64_t rows = 0;
  if (__builtin_add_overflow(pastRows, shape[2], &rows))
    return context.error("the present is too large");
  auto present =
      outputOrScratch(context, 1, attention.key.element, {2, shape[0], shape[1], rows, shape[3]});
  if (!present)
    return present.takeError();
  TensorView* fresh[] = {&attention.key, &attention.value};
  for (int64_t part : {0, 1}) {
    const TensorView whole = stacked(*present, part);
    if (past)
      copyRows(stacked(*past, part), slicedAxis(whole, 2, 0, pastRows));
    copyRows(*fresh[part], slicedAxis(whole, 2, pastRows, shape[2]));
    *fresh[part] = whole;
  }
  return llvm::Error::success();
}

llvm::Error fusedAttention(KernelContext& context) {
  const Node& node = context.node();
  const int64_t heads = node.intAttr("num_heads", 0);
  if (heads <= 0)
    return context.error("num_heads must be positive");
  if (node.intAttr("do_rotary", 0) != 0)
    return context.error("do_rotary is not supported");
  if (node.intAttr("past_present_share_buffer", 0) != 0 || context.has(PastLength))
    return context.error("past_present_share_buffer and past_sequence_length, which is a past in a "
                         "shared buffer, are not supported");
  const TensorView& input = context.in(Input);
  const TensorView& weights = context.in(Weights);
  if (input.rank() != 3 || weights.rank() != 2 || weights.shape[0] != input.shape[2])
    return context.error("input must be [B,S,N] and weights [N,columns]");
  auto widths = widthsOf(context, weights.shape[1], heads);
  if (!widths)
    return widths.takeError();
  auto projected = projections(context);
  if (!projected)
    return projected.takeError();
  auto part = [&](int64_t first, int64_t width) {
    return viewOfHeads(slicedAxis(*projected, 2, first, width), heads);
  };
  MaskedAttention attention;
  attention.query = part(0, widths->query);
  attention.key = part(widths->query, widths->key);
  attention.value = part(widths->query + widths->key, widths->value);
  if (llvm::Error error = appendToPast(context, attention))
    return error;
  attention.pastRows = attention.key.shape[2] - attention.query.shape[2];
  attention.paddingOperand = MaskIndex;
  attention.hasStartPositions = true;
  attention.biasOperand = AttentionBias;
  return maskedAttentionResult(context, attention);
}

} // namespace

void register_fused_attention(KernelRegistry& registry) {
  registry.add("com.microsoft::Attention", 1, fusedAttention);
}

} // namespace kvopt::kernels
