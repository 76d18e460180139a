// Embedding, normalization and activation operators of ONNX Runtime's domain com.microsoft.
#include "ir/ops/contrib/contrib_domain.h"
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

// Results: the normalized embedding [B,S,N], the number of visible tokens [B], the embedding.
llvm::Error inferEmbedLayerNormalization(ShapeContext& context) {
  const TensorType& ids = context.type(0);
  const TensorType& words = context.type(2);
  for (unsigned operand : {0u, 2u, 3u})
    if (llvm::Error error = requireRank(context, operand, 2))
      return error;
  TensorType embedding(words.elementType(), Shape{ids.dim(0), ids.dim(1), words.dim(1)});
  context.setResult(0, embedding);
  context.setResult(1, TensorType(ElementType::Int32, Shape{ids.dim(0)}));
  context.setResult(2, embedding);
  return llvm::Error::success();
}

} // namespace

void register_contrib_normalization(OpRegistry& registry) {
  OpDefBuilder embed = define(registry, OpName(contribDomain, "EmbedLayerNormalization"), 1);
  for (const char* name : {"input_ids", "segment_ids?", "word_embedding", "position_embedding",
                           "segment_embedding?", "gamma", "beta", "mask?", "position_ids?"})
    embed.in(name);
  embed.out("output").out("mask_index?").out("embedding_sum?");
  embed.attr("epsilon", 1e-12f)
      .attr("mask_index_type", int64_t{0})
      .shape(inferEmbedLayerNormalization);
  define(registry, OpName(contribDomain, "QuickGelu"), 1)
      .in("X")
      .out("Y")
      .attr("alpha", 1.702f)
      .elementwise(ElementFunction::Nonlinear);
}

} // namespace kvopt::ir
