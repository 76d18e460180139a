// CutDecoder: runs a decoder in parts, with a loop over the tiles of each attention between two
// parts.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/exec/executor.h"
#include "runtime/session/pyramid.h"

#include "llvm/ADT/StringMap.h"

namespace kvopt::runtime {

/// Pieces of one model, each in a separate executor. Only one run at a time.
class CutDecoder {
public:
  /// Creates the executor of a piece; `constantsOf` may be null.
  using MakeExecutor = llvm::function_ref<llvm::Expected<std::unique_ptr<Executor>>(
      const ir::Model& piece, const Executor* constantsOf)>;

  /// Opens all pieces of `whole`, which must outlive them, as must the source of models. Requires
  /// that the manifest has tiles. `constantsOf` is a decoder of the same pieces whose constants are
  /// shared; null for separate constants. Fails if a piece reads a value that no piece returns, or
  /// does not return a value in the manifest.
  static llvm::Expected<std::unique_ptr<CutDecoder>>
  create(const ir::Model& whole, const ir::Manifest& manifest, ir::VariantSource& source,
         MakeExecutor makeExecutor, const CutDecoder* constantsOf = nullptr);
  ~CutDecoder();

  /// Computes the outputs of the whole model, in its order, from `inputs`, its inputs by name, with
  /// `past` tokens in the blocks. Blocks without tokens are not read. After an error, `outputs` is
  /// unchanged.
  llvm::Error run(llvm::ArrayRef<NamedView> inputs, int64_t past, std::vector<Tensor>& outputs);

  void dropMemory();
  /// Statistics of the latest run, summed over all pieces; peaks are the maximum over the pieces.
  const RunStatistics& statistics() const { return total; }

private:
  CutDecoder(const ir::Graph& wholeGraph, const ir::Manifest& wholeManifest)
      : whole(wholeGraph), manifest(wholeManifest), tiles(*wholeManifest.tiles) {}

  /// Index of a value of the whole decoder, by its name.
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
    std::vector<size_t> inputs; ///< indices of the names of a tile's inputs
  };
  /// Slots of an attention's operands.
  struct Attention {
    const ir::ManifestTiledAttention* described;
    Slot query, key, value, mask, output, maximum, sum, result;
    std::vector<Slot> keyBlocks, valueBlocks;
  };
  /// State between tiles, in memory of a tile or of the part that initialized it.
  struct State {
    std::vector<Tensor> tensors;
    TensorView output, maximum, sum;
  };
  /// Keys and values of one tile, and its columns of the mask.
  struct TileRows {
    TensorView key, value;
    int64_t firstColumn, endColumn;
  };

  llvm::Error checkParts() const;
  llvm::Error checkTiles() const;
  /// Assigns a slot to every value. Requires that the pieces were checked.
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
  std::vector<llvm::StringRef> names; ///< for each slot
  std::vector<Slot> wholeOutputs;
  RunStatistics total;

  /// For each slot, the value of the latest run. The storage is reused.
  std::vector<TensorView> values;
  std::vector<bool> isKnown;
  std::vector<Tensor> computed;
  std::vector<NamedView> given;
  State state;
  std::vector<Tensor> nextState;
  std::vector<Tensor> collected;
};

} // namespace kvopt::runtime
