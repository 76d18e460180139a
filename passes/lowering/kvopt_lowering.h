// KvoptLowering: writes sites with ai.kvopt's operators and their function bodies.
#pragma once

#include "ir/function_body.h"
#include "ir/manifest.h"
#include "ir/model.h"
#include "passes/lowering/length_input.h"
#include "passes/target.h"

#include <set>

namespace kvopt {

/// Lowers sites of one model, each of which the target `kvopt` supports.
class KvoptLowering {
public:
  KvoptLowering(Model& lowered, const LowerOptions& options, Journal& editJournal);

  llvm::Expected<Manifest> run(llvm::ArrayRef<AttentionSite*> sites);

private:
  llvm::Error lowerCached(AttentionSite& site);
  llvm::Error lowerLatent(AttentionSite& site);
  /// Attention whose caches stay as they are keeps its operator; its function needs every operand
  /// and attribute.
  void completeUncached(AttentionSite& site);

  Value& pastLengthOf(const CacheUpdate& update);
  void rewireShapeReaders(const AttentionSite& site);
  Value& maskOperand(const Node& sdpa);
  Value* sinksOperand(const Node& sdpa);
  Value& lengthOperand(Node& sdpa, Rewriter& rewriter);
  static void handOut(const Value& rows, Value& present);
  Value& newRows(const AttentionSite& site, const CacheUpdate& update, Rewriter& rewriter);
  void makeShared(const CacheUpdate& update, Value& present);
  void describe(const CacheUpdate& update, const std::string& presentName, unsigned layer,
                CacheRole role);
  llvm::Error replaceCaches(AttentionSite& site, Node& fused, llvm::ArrayRef<CacheUpdate*> updates,
                            llvm::ArrayRef<CacheRole> roles, Rewriter& rewriter);
  llvm::Error addAppendRows();
  /// Writes the body of `op` into the model, once.
  llvm::Error addFunction(OpName op, llvm::function_ref<std::string()> text);
  BodyForm bodyForm(const Node& sdpa) const;
  void finishManifest();

  Model& model;
  Graph& graph;
  std::optional<int64_t> fixedCapacity;
  Journal& journal;
  Manifest manifest;
  std::optional<LengthInput> length;
  Value* neutralMask = nullptr;
  Value* zeroLength = nullptr;
  bool anySinks = false;
  bool anyLengths = false;
  /// Pasts whose caches the manifest names.
  llvm::DenseSet<const Value*> described;
  std::vector<std::pair<Value*, TensorType>> presentTypes;
};

} // namespace kvopt
