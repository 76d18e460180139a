// CutDecoder: runs a decoder in pieces, with a loop over the tiles of each attention between its
// parts.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/exec/executor.h"
#include "runtime/session/pyramid.h"

#include "llvm/ADT/StringMap.h"

namespace kvopt::runtime {

/// The pieces of one model, each in an executor of its own. One run at a time.
class CutDecoder {
public:
  /// Makes the executor of a piece; `constantsOf` may be null.
  using MakeExecutor = llvm::function_ref<llvm::Expected<std::unique_ptr<Executor>>(
      const ir::Model& piece, const Executor* constantsOf)>;

  /// Opens all pieces of `whole`, which must outlive them as the source of models must. The
  /// manifest has tiles. `constantsOf` is a decoder of the same pieces whose constants are used;
  /// null for one with its own. Fails where a piece reads what nothing gives, or does not give what
  /// the manifest says.
  static llvm::Expected<std::unique_ptr<CutDecoder>>
  create(const ir::Model& whole, const ir::Manifest& manifest, VariantSource& source,
         MakeExecutor makeExecutor, const CutDecoder* constantsOf = nullptr);

  /// What the whole model computes of `inputs`, the inputs of it by name, where `past` tokens are
  /// in the blocks; outputs are in the order of the whole model's. Blocks that hold none of them
  /// are not read. After an error `outputs` is as before.
  llvm::Error run(llvm::ArrayRef<NamedView> inputs, int64_t past, std::vector<Tensor>& outputs);

  void dropMemory();
  /// Of the latest run, over all pieces; peaks are the largest of one piece.
  const RunStatistics& statistics() const { return total; }

private:
  CutDecoder(const ir::Graph& wholeGraph, const ir::Manifest& wholeManifest)
      : whole(wholeGraph), manifest(wholeManifest), tiles(*wholeManifest.tiles) {}

  /// The state between tiles: memory of a tile's, or of the part's that made the first one.
  struct State {
    std::vector<Tensor> tensors;
    TensorView output, maximum, sum;
  };

  llvm::Error checkPieces() const;
  llvm::Error runPiece(Executor& piece, llvm::ArrayRef<NamedView> given,
                       std::vector<Tensor>& outputs);
  llvm::Error runPart(size_t index);
  llvm::Error attend(const ir::ManifestTiledAttention& attention, int64_t past);
  llvm::Error runTile(size_t index, const ir::ManifestTiledAttention& attention,
                      const TensorView& key, const TensorView& value, int64_t firstColumn,
                      State& state);
  llvm::Expected<TensorView> valueNamed(llvm::StringRef name) const;
  llvm::Expected<TensorView> blockOf(const std::string& past, size_t index) const;

  const ir::Graph& whole;
  const ir::Manifest& manifest;
  const ir::ManifestTiles& tiles;
  std::vector<std::unique_ptr<Executor>> parts;
  std::vector<std::unique_ptr<Executor>> tileExecutors;
  RunStatistics total;

  /// Of the latest run: what was given and computed, by name.
  llvm::StringMap<TensorView> values;
  llvm::StringMap<Tensor> computed;
};

} // namespace kvopt::runtime
