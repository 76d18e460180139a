// The keys of models in pieces: parts, and tiles of attention between them.
#include "ir/manifest/field_table.h"

namespace kvopt::ir {

namespace {

template <auto member> constexpr Field<ManifestTiledAttention> attentionField(ManifestField info) {
  return fieldOf<ManifestTiledAttention, member>(info);
}

constexpr Field<ManifestTiledAttention> attentionFields[] = {
    attentionField<&ManifestTiledAttention::afterPart>(
        {.key = "after_part", .sentence = "Index of the part after which it is computed."}),
    attentionField<&ManifestTiledAttention::query>(
        {.key = "query", .sentence = "Value that all tiles take as `query`."}),
    attentionField<&ManifestTiledAttention::key>(
        {.key = "key",
         .sentence = "Value that the last tile takes as `key`: that of the new rows."}),
    attentionField<&ManifestTiledAttention::value>(
        {.key = "value",
         .sentence = "Value that the last tile takes as `value`: that of the new rows."}),
    attentionField<&ManifestTiledAttention::mask>(
        {.key = "mask",
         .sentence = "Value with a column for each row of all blocks and each new row. Each "
                     "tile takes its own columns."}),
    attentionField<&ManifestTiledAttention::output>(
        {.key = "output", .sentence = "Output before the first tile."}),
    attentionField<&ManifestTiledAttention::maximum>(
        {.key = "maximum", .sentence = "Maximum of the scores before the first tile."}),
    attentionField<&ManifestTiledAttention::sum>(
        {.key = "sum", .sentence = "Sum of the exponentials before the first tile."}),
    attentionField<&ManifestTiledAttention::keyCache>(
        {.key = "key_cache", .sentence = "`past` of the cache of keys."}),
    attentionField<&ManifestTiledAttention::valueCache>(
        {.key = "value_cache",
         .sentence = "`past` of the cache of values; the same for rows that are both."}),
    attentionField<&ManifestTiledAttention::blockTile>(
        {.key = "block_tile", .sentence = "Index of the tile for a full block."}),
    attentionField<&ManifestTiledAttention::tailTile>(
        {.key = "tail_tile",
         .when = "the capacity is not a multiple of the block size",
         .sentence = "Index of the tile for the last block, which has fewer rows."}),
    attentionField<&ManifestTiledAttention::lastTile>(
        {.key = "last_tile", .sentence = "Index of the tile for the new rows."}),
    attentionField<&ManifestTiledAttention::result>(
        {.key = "result",
         .sentence = "Name of the last tile's `next_output` in the parts that read it."}),
};

constexpr FieldTable<ManifestTiledAttention> attentionTable{
    {"attention between parts",
     "One attention that tiles compute: values are named as in the parts that give them.",
     &fieldsOf<ManifestTiledAttention>},
    attentionFields};

constexpr Field<ManifestTiles> tileFields[] = {
    fieldOf<ManifestTiles, &ManifestTiles::state>(
        {.key = "state",
         .sentence = "Element type of what a tile passes to the next: float32 or float16."}),
    fieldOf<ManifestTiles, &ManifestTiles::parts>(
        {.key = "parts",
         .type = FieldType::FileNames,
         .sentence = "Files of the parts, in the order in which they run."}),
    fieldOf<ManifestTiles, &ManifestTiles::tiles>(
        {.key = "tiles", .type = FieldType::FileNames, .sentence = "Files of the tiles."}),
    fieldOf<ManifestTiles, &ManifestTiles::outputs>(
        {.key = "outputs", .sentence = "Outputs of the model, which parts give."}),
    fieldOf<ManifestTiles, &ManifestTiles::attentions>(
        {.key = "attentions",
         .sentence = "Attention between the parts, in the order of the parts."}),
};

constexpr FieldTable<ManifestTiles> tilesTable{
    {"pieces", "The parts and tiles that a model was cut into.", &fieldsOf<ManifestTiles>},
    tileFields};

} // namespace

template <> const FieldTable<ManifestTiledAttention>& tableOf() { return attentionTable; }
template <> const FieldTable<ManifestTiles>& tableOf() { return tilesTable; }

} // namespace kvopt::ir
