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

  /// A value of the whole decoder has a slot, by its name.
  using Slot = unsigned;

  struct PartInput {
    llvm::StringRef name;
    Slot slot;
    bool hasDefault;
  };
  struct Part {
    std::unique_ptr<Executor> executor;
    std::vector<PartInput> inputs;
    std::vector<Slot> outputs;
    std::vector<Tensor> results; ///< empty between steps
  };
  struct Tile {
    std::unique_ptr<Executor> executor;
    std::vector<size_t> inputs; ///< which of the names that tiles are given
  };
  /// Where an attention's operands are.
  struct Attention {
    const ir::ManifestTiledAttention* described;
    Slot query, key, value, mask, output, maximum, sum, result;
    std::vector<Slot> keyBlocks, valueBlocks;
  };
  /// The state between tiles: memory of a tile's, or of the part's that made the first one.
  struct State {
    std::vector<Tensor> tensors;
    TensorView output, maximum, sum;
  };
  /// The keys and values of one tile, and the columns of the mask that are theirs.
  struct TileRows {
    TensorView key, value;
    int64_t firstColumn, endColumn;
  };

  llvm::Error checkParts() const;
  llvm::Error checkTiles() const;
  /// Gives every value a slot. Requires pieces that were checked.
  void connect();
  void connectAttention(const ir::ManifestTiledAttention& described);
  std::vector<Slot> blockSlots(const std::string& past);
  Slot slotOf(llvm::StringRef name);
  llvm::Error runPiece(Executor& piece, std::vector<Tensor>& outputs);
  llvm::Error runPart(Part& part);
  llvm::Error attend(const Attention& attention, int64_t past);
  llvm::Error runTile(int64_t index, const Attention& attention, const TileRows& rows);
  llvm::Expected<TensorView> valueAt(Slot slot) const;
  llvm::Error takeOutputs(std::vector<Tensor>& outputs);
  void forget();

  const ir::Graph& whole;
  const ir::Manifest& manifest;
  const ir::ManifestTiles& tiles;
  std::vector<Part> parts;
  std::vector<Tile> tileExecutors;
  std::vector<Attention> attentions;
  llvm::StringMap<Slot> slots;
  std::vector<llvm::StringRef> names; ///< by slot
  std::vector<Slot> wholeOutputs;
  RunStatistics total;

  /// Of the latest run, by slot: what was given and computed. The storage is used again.
  std::vector<TensorView> values;
  std::vector<bool> isKnown;
  std::vector<Tensor> computed;
  std::vector<NamedView> given;
  State state;
  std::vector<Tensor> nextState;
  std::vector<Tensor> collected;
};

} // namespace kvopt::runtime
