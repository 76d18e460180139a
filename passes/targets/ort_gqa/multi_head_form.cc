// Conditions of ONNX Runtime's CPU kernel, and the conversion.
#include "passes/targets/ort_gqa/multi_head_form.h"

#include "ir/ops/contrib/multi_head_operands.h"
#include "passes/builders/attention_builder.h"
#include "passes/pattern/handled.h"
#include "passes/targets/support/token_rows.h"
#include "support/diagnostic.h"
#include "support/format.h"

namespace kvopt::targets {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

/// Operands of ai.kvopt::Sdpa.
enum SdpaOperand : unsigned { SdpaQuery, SdpaKey, SdpaValue, SdpaMask };

constexpr llvm::StringLiteral multiHeadAttributes[] = {"scale", "mask_boolean"};
constexpr llvm::StringLiteral multiHeadOperands[] = {"query", "key", "value", "mask"};

/// The mask [1|B,1|H,S,T], as the operator requires it.
Value& wholeBias(Value& mask, Value& query, Value& key, AttentionBuilder& build) {
  Value* bias = &mask;
  while (bias->type().rank() < 4)
    bias = &build.unsqueeze(*bias, 0);
  if (bias->type().dim(2).isKnownEqual(query.type().dim(2)) &&
      bias->type().dim(3).isKnownEqual(key.type().dim(2)))
    return *bias;
  Value& rows = build.value(build.extent(query, 2));
  Value& columns = build.value(build.extent(key, 2));
  Value& extents = build.concat(build.value(ints({1, 1})), build.concat(rows, columns, 0), 0);
  return build.node("Expand", {*bias, extents}, {}, "attention_bias");
}

} // namespace

std::optional<MatchFailure> multiHeadObstacle(const AttentionSite& site) {
  const Node& sdpa = *site.node;
  const auto refuse = [&](ReasonCode code, const char* expected, std::string found) {
    return MatchFailure{code, sdpa.name().str(), expected, std::move(found), ""};
  };
  if (std::optional<MatchFailure> failure =
          unhandled(sdpa, {multiHeadAttributes, multiHeadOperands}))
    return failure;
  for (unsigned operand : {SdpaQuery, SdpaKey, SdpaValue}) {
    const TensorType& type = sdpa.operand(operand)->type();
    if (type.elementType() != ElementType::Float)
      return refuse(ReasonCode::DtypeMix, "float32, which MultiHeadAttention has on CPUs",
                    onnxName(type.elementType()).str());
    if (!type.hasRank() || !type.dim(1).value() || !type.dim(3).value() ||
        !type.dim(1).isKnownEqual(site.queryHeads))
      return refuse(ReasonCode::HeadCountUnproven, "equal, fixed numbers of query and key heads",
                    type.str());
  }
  if (sdpa.floatAttr("scale", 1.0f) == 0.0f)
    return refuse(ReasonCode::TargetLacksFeature, "a scale other than 0", "0");
  const Value* mask = sdpa.operand(SdpaMask);
  if (!mask)
    return std::nullopt;
  if (mask->type().elementType() != ElementType::Float || !mask->type().hasRank() ||
      mask->type().rank() == 0)
    return refuse(ReasonCode::BiasUnsupported, "a mask that is added to the scores",
                  mask->type().str());
  // A row that sees no key has no numbers in the operator, but zeros in ai.kvopt::Sdpa.
  if (!site.mask || (site.mask->isExact && !site.mask->everyRowSeesAKey))
    return refuse(ReasonCode::BiasUnsupported, "a mask that shows every row a key",
                  site.mask ? site.mask->text : "a mask that was not analyzed");
  return std::nullopt;
}

llvm::Error lowerMultiHead(AttentionSite& site, Journal& journal) {
  Node& sdpa = *site.node;
  Rewriter rewriter(sdpa.graph(), "lower-ort-gqa", journal, sdpa.name());
  AttentionBuilder build(rewriter);
  Value& query = *sdpa.operand(SdpaQuery);
  Value& key = *sdpa.operand(SdpaKey);
  llvm::SmallVector<Value*, 6> operands(mha::AttentionBias + 1, nullptr);
  operands[mha::Query] = &tokenRows(query, build);
  operands[mha::Key] = &key;
  operands[mha::Value] = sdpa.operand(SdpaValue);
  if (Value* mask = sdpa.operand(SdpaMask))
    operands[mha::AttentionBias] = &wholeBias(*mask, query, key, build);
  while (!operands.back())
    operands.pop_back();
  Node& attention = rewriter.create(
      "com.microsoft::MultiHeadAttention", operands,
      attrs({{"num_heads", *site.queryHeads.value()}, {"scale", sdpa.floatAttr("scale", 1.0f)}}), 1,
      "attention");
  rewriter.recordSources(attention, {&sdpa});
  handOutTokenRows(sdpa, attention.result(), rewriter);
  site.node = &attention;
  return llvm::Error::success();
}

} // namespace kvopt::targets
