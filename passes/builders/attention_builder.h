// AttentionBuilder: writes the parts of a fused attention operator other than attention itself, in
// standard operators: layouts, positions, lengths and masks.
#pragma once

#include "passes/pattern/rewriter.h"

namespace kvopt::builders {

/// An operand of a node to be created: a value, or a small int64 constant that is created on
/// demand.
struct BuilderOperand {
  BuilderOperand(ir::Value& present) : value(&present) {} // NOLINT(google-explicit-constructor)
  BuilderOperand(ir::Value* maybe) : value(maybe) {}      // NOLINT(google-explicit-constructor)
  BuilderOperand(ir::TensorRef data) : constant(std::move(data)) {} // NOLINT

  ir::Value* value = nullptr; ///< null without a constant: absent
  ir::TensorRef constant;
};

/// Creates nodes through a Rewriter. Letters: B batch, S tokens, H heads, W head width.
class AttentionBuilder {
public:
  explicit AttentionBuilder(pattern::Rewriter& edits) : rewriter(edits) {}

  /// The first result of a node with these operands and attributes. An equal node among the readers
  /// of the operands is reused, so that layers share nodes.
  ir::Value& node(ir::OpName op, llvm::ArrayRef<BuilderOperand> operands,
                  std::vector<ir::NamedAttribute> attributes = {}, llvm::StringRef hint = "");

  /// [B,S,H*W] → [B,H,S,W]; `width` is W, or 0 if it is not known.
  ir::Value& splitHeads(ir::Value& tokens, int64_t heads, int64_t width);
  /// [B,H,S,W] → [B,S,H*W].
  ir::Value& mergeHeads(ir::Value& heads);
  ir::Value& transpose(ir::Value& value, std::vector<int64_t> permutation);
  ir::Value& concat(ir::Value& first, ir::Value& second, int64_t axis);
  /// Elements [begin, end) of one axis.
  ir::Value& slice(ir::Value& value, int64_t axis, int64_t begin, int64_t end);
  /// Inserts an axis of extent one at `axis`.
  ir::Value& unsqueeze(ir::Value& value, int64_t axis);

  /// The extent of an axis as int64 [1], or as a scalar: a constant if it is known, else read from
  /// a graph input with the same extent if there is one, so that all layers use the same value.
  BuilderOperand extent(ir::Value& value, int64_t axis, bool scalar = false);
  /// The operand as a value. A constant is created, or a recent equal one reused.
  ir::Value& value(const BuilderOperand& operand);
  /// int64 [n]: 0 … n-1 for a scalar n.
  ir::Value& range(const BuilderOperand& count);
  /// int64 [B,S]: past_length[b] + s, for past_length [1 or B].
  ir::Value& positions(ir::Value& pastLength, const BuilderOperand& rowCount);

  /// `position`, an index into an axis of `cache`, for operators that count negative indices from
  /// the end. A negative index becomes the axis's extent, which such an operator rejects. The
  /// result has the type of `position`.
  ir::Value& checkedSlot(ir::Value& position, ir::Value& cache, int64_t axis);

  /// 0 where `kept` (bool) is true and `otherwise` elsewhere, in a floating-point type.
  ir::Value& additive(ir::Value& kept, ir::ElementType type, double otherwise);
  /// The additive mask [B,1,1,T] or [B,1,S,T] for an integer mask [B,T] or [B,S,T] whose positive
  /// elements are kept.
  ir::Value& keptMask(ir::Value& mask, ir::ElementType type, double otherwise);
  /// The additive mask [B,1,1,T] that keeps the first lengths[b] (int [B]) keys; T is a scalar.
  ir::Value& lengthMask(ir::Value& lengths, const BuilderOperand& tokens, ir::ElementType type,
                        double otherwise);
  /// bool [S,T]: whether key j of T is at most the own key of row i of S, the last rows' keys.
  ir::Value& causalKeys(ir::Value& query, ir::Value& keys);
  ir::Value& castTo(ir::Value& value, ir::ElementType type);
  /// The mask with its last axis extended to `tokens` (int64 [1]) by "masked", for masks that may
  /// be shorter. Boolean, or additive floating point.
  ir::Value& paddedMask(ir::Value& mask, const BuilderOperand& tokens);

  struct AttentionParts {
    ir::Value* query = nullptr; ///< [B,H,S,D]
    ir::Value* key = nullptr;
    ir::Value* value = nullptr;
    ir::Value* mask = nullptr;
    ir::Value* sinks = nullptr;
    ir::Value* pastLength = nullptr;
    double scale = 1;
    bool causal = false;
    int64_t window = 0;
    float softcap = 0;
  };
  /// The ai.kvopt::Sdpa; `sources` are recorded as the nodes that it replaces.
  ir::Value& sdpa(const AttentionParts& parts, llvm::ArrayRef<ir::Node*> sources);

  /// A cache of the replaced operator.
  struct RaisedCache {
    ir::Value* past = nullptr; ///< null if there is none
    ir::Value* fresh = nullptr;
    ir::Value* present = nullptr; ///< past and fresh joined
  };
  /// Replaces the results of `fused` with `output` and the presents of keys, then values, and gives
  /// the caches the extents of the new rows. Undoes everything on failure.
  std::optional<pattern::MatchFailure> replace(ir::Node& fused, ir::Value& output,
                                               const RaisedCache& keys, const RaisedCache& values);

private:
  pattern::Rewriter& rewriter;
};

/// Writes the fixed extents of new rows into the type of a past or present whose extents are named
/// only; exporters write names such as "kv_cache_dim". All extents but the sequence's must be
/// shared. Returns whether the type changed.
bool refineCacheType(ir::Value& cache, const ir::Value& rows, unsigned sequenceAxis = 2);

/// int64 constants for BuilderOperand.
inline ir::TensorRef ints(llvm::ArrayRef<int64_t> values) { return ir::int64Tensor(values); }

/// 1 / sqrt(width).
double defaultScale(int64_t width);

} // namespace kvopt::builders
