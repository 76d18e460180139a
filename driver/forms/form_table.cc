// The cells of the table, and the presets.
#include "driver/forms/form_table.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {

namespace {

using Cells = std::array<FormCell, rowKindCount>;

constexpr FormCell by(const char* target) { return {target, nullptr}; }
constexpr FormCell no(const char* sentence) { return {nullptr, sentence}; }
constexpr FormCell& cellFor(Cells& cells, RowKind rows) { return cells[static_cast<size_t>(rows)]; }
/// Cells of a row without written forms.
constexpr Cells none(const char* sentence) {
  Cells cells{};
  cells.fill(no(sentence));
  return cells;
}

/// A cell for rows of codes.
struct CodeCell {
  RowKind rows;
  FormCell cell;
};
/// Cells for rows of the model's own type, rows of 16 bits, and codes, with the reason that no
/// others are written.
constexpr Cells cellsOf(FormCell same, FormCell narrow, const char* whyNoOthers,
                        std::initializer_list<CodeCell> codes = {}) {
  Cells cells = none(whyNoOthers);
  cellFor(cells, RowKind::Same) = same;
  cellFor(cells, RowKind::Float16) = cellFor(cells, RowKind::BFloat16) = narrow;
  for (const CodeCell& code : codes)
    cellFor(cells, code.rows) = code.cell;
  return cells;
}
/// Cells for rows of any floating-point type, without codes.
constexpr Cells numbers(const char* target, const char* codes) {
  return cellsOf(by(target), by(target), codes);
}

constexpr const char* gqaTypes = "ONNX Runtime's attention takes caches of the query's type only.";
constexpr const char* gqaLatent =
    "ONNX Runtime's attention reads keys and values from caches of their own.";
constexpr const char* pagedCodes = "PagedAttention has no quantized caches.";
constexpr const char* onnxTypes = "ONNX's Attention takes caches of the query's type only.";
constexpr const char* onnxCodes = "ONNX's Attention reads numbers, not codes.";
constexpr const char* plainCodes =
    "Standard operators would turn every cached row into numbers at each step.";
constexpr const char* plainBuffer =
    "Standard operators other than TensorScatter copy the buffer that they write into.";
constexpr const char* tileTypes = "Tiles read rows of the model's own type.";
constexpr const char* fourBitBlocks = "No operator keeps four-bit rows in blocks.";
constexpr const char* otherCodes = "No operator keeps such rows.";

constexpr FormRow formRows[] = {
    FormRow{Engine::Ort, CacheKind::Grow, SplitKind::None,
            none("ONNX Runtime's attention writes into buffers of fixed capacity."),
            none("ONNX Runtime's attention writes into buffers of fixed capacity.")},
    FormRow{Engine::Ort, CacheKind::Buffer, SplitKind::None,
            cellsOf(by("ort-gqa"), no(gqaTypes), otherCodes,
                    {{RowKind::Int8, by("ort-gqa")}, {RowKind::Int4, by("ort-gqa")}}),
            none(gqaLatent)},
    FormRow{Engine::Ort, CacheKind::Ring, SplitKind::None,
            none("GroupQueryAttention keeps all rows of a sequence."), none(gqaLatent)},
    FormRow{Engine::Ort, CacheKind::Blocks, SplitKind::None,
            none("ONNX Runtime's attention reads one cache, not several inputs."), none(gqaLatent)},
    FormRow{Engine::Ort, CacheKind::Paged, SplitKind::None,
            cellsOf(by("paged"), no(gqaTypes), pagedCodes), none(gqaLatent)},

    FormRow{Engine::Onnx, CacheKind::Grow, SplitKind::None, numbers("onnx23", onnxCodes),
            numbers("onnx23", onnxCodes)},
    FormRow{Engine::Onnx, CacheKind::Buffer, SplitKind::None,
            cellsOf(by("onnx24"), no(onnxTypes), onnxCodes),
            cellsOf(by("onnx24"), no(onnxTypes), onnxCodes)},
    FormRow{Engine::Onnx, CacheKind::Ring, SplitKind::None,
            cellsOf(by("onnx24-ring"), no(onnxTypes), onnxCodes),
            cellsOf(by("onnx24-ring"), no(onnxTypes), onnxCodes)},
    FormRow{Engine::Onnx, CacheKind::Blocks, SplitKind::None,
            none("ONNX's Attention reads one cache, not several inputs."),
            none("ONNX's Attention reads one cache, not several inputs.")},
    FormRow{Engine::Onnx, CacheKind::Paged, SplitKind::None,
            none("ONNX has no operator that reads a table of blocks."),
            none("ONNX has no operator that reads a table of blocks.")},

    FormRow{Engine::Kvopt, CacheKind::Grow, SplitKind::None,
            none("kvopt's operators write into buffers, whose capacity may be dynamic."),
            none("kvopt's operators write into buffers, whose capacity may be dynamic.")},
    FormRow{Engine::Kvopt, CacheKind::Buffer, SplitKind::None,
            cellsOf(by("kvopt"), by("kvopt"), otherCodes,
                    {{RowKind::Int8, by("int8")}, {RowKind::Int4, by("int4")}}),
            cellsOf(by("latent"), by("latent"), otherCodes,
                    {{RowKind::Int8, by("int8")}, {RowKind::Int4, by("int4")}})},
    FormRow{Engine::Kvopt, CacheKind::Ring, SplitKind::None,
            cellsOf(by("ring"), by("ring"), otherCodes,
                    {{RowKind::Int8, by("int8-ring")}, {RowKind::Int4, by("int4-ring")}}),
            cellsOf(by("ring"), by("ring"), otherCodes,
                    {{RowKind::Int8, by("int8-ring")}, {RowKind::Int4, by("int4-ring")}})},
    FormRow{Engine::Kvopt, CacheKind::Blocks, SplitKind::None,
            cellsOf(by("blocks"), by("blocks"), otherCodes,
                    {{RowKind::Int8, by("int8-blocks")}, {RowKind::Int4, no(fourBitBlocks)}}),
            cellsOf(by("blocks"), by("blocks"), otherCodes,
                    {{RowKind::Int8, by("int8-blocks")}, {RowKind::Int4, no(fourBitBlocks)}})},
    FormRow{Engine::Kvopt, CacheKind::Paged, SplitKind::None,
            none("Sessions of kvopt keep pools of blocks themselves: a model needs no table."),
            none("Sessions of kvopt keep pools of blocks themselves: a model needs no table.")},

    FormRow{Engine::Primitive, CacheKind::Grow, SplitKind::None, numbers("primitive", plainCodes),
            numbers("primitive", plainCodes)},
    FormRow{Engine::Primitive, CacheKind::Buffer, SplitKind::None, none(plainBuffer),
            none(plainBuffer)},
    FormRow{Engine::Primitive, CacheKind::Ring, SplitKind::None, none(plainBuffer),
            none(plainBuffer)},
    FormRow{Engine::Primitive, CacheKind::Blocks, SplitKind::None,
            numbers("blocks-plain", plainCodes), numbers("blocks-plain", plainCodes)},
    FormRow{Engine::Primitive, CacheKind::Blocks, SplitKind::Pyramid,
            numbers("pyramid", plainCodes), numbers("pyramid", plainCodes)},
    FormRow{Engine::Primitive, CacheKind::Blocks, SplitKind::Tiles,
            cellsOf(by("tiles"), no(tileTypes), plainCodes),
            cellsOf(by("tiles"), no(tileTypes), plainCodes)},
    FormRow{Engine::Primitive, CacheKind::Paged, SplitKind::None,
            none("Standard operators do not read a table of blocks."),
            none("Standard operators do not read a table of blocks.")},
};

constexpr std::optional<CacheKind> anyCache;
constexpr std::optional<RowKind> anyRows;
constexpr std::optional<bool> anyWidth;
constexpr std::optional<SplitKind> anySplit;
constexpr std::optional<int64_t> anyOpset;

constexpr FormPreset presets[] = {
    FormPreset{"ort-gqa", Engine::Ort, CacheKind::Buffer, anyRows, anyWidth, anySplit, anyOpset},
    FormPreset{"paged", Engine::Ort, CacheKind::Paged, anyRows, anyWidth, anySplit, anyOpset},
    FormPreset{"onnx24", Engine::Onnx, anyCache, anyRows, anyWidth, anySplit, 24},
    FormPreset{"onnx24-ring", Engine::Onnx, CacheKind::Ring, anyRows, anyWidth, anySplit, 24},
    FormPreset{"onnx23", Engine::Onnx, CacheKind::Grow, anyRows, anyWidth, anySplit, 23},
    FormPreset{"latent", Engine::Kvopt, anyCache, anyRows, true, anySplit, anyOpset},
    FormPreset{"ring", Engine::Kvopt, CacheKind::Ring, anyRows, anyWidth, anySplit, anyOpset},
    FormPreset{"int8", Engine::Kvopt, anyCache, RowKind::Int8, anyWidth, anySplit, anyOpset},
    FormPreset{"int4", Engine::Kvopt, anyCache, RowKind::Int4, anyWidth, anySplit, anyOpset},
    FormPreset{"int8-ring", Engine::Kvopt, CacheKind::Ring, RowKind::Int8, anyWidth, anySplit,
               anyOpset},
    FormPreset{"int4-ring", Engine::Kvopt, CacheKind::Ring, RowKind::Int4, anyWidth, anySplit,
               anyOpset},
    FormPreset{"blocks", Engine::Kvopt, CacheKind::Blocks, anyRows, anyWidth, anySplit, anyOpset},
    FormPreset{"int8-blocks", Engine::Kvopt, CacheKind::Blocks, RowKind::Int8, anyWidth, anySplit,
               anyOpset},
    FormPreset{"blocks-plain", Engine::Primitive, CacheKind::Blocks, anyRows, anyWidth,
               SplitKind::None, anyOpset},
    FormPreset{"pyramid", Engine::Primitive, CacheKind::Blocks, anyRows, anyWidth,
               SplitKind::Pyramid, anyOpset},
    FormPreset{"tiles", Engine::Primitive, CacheKind::Blocks, anyRows, anyWidth, SplitKind::Tiles,
               anyOpset},
    // The engines; the user chooses the other axes.
    FormPreset{"ort", Engine::Ort, anyCache, anyRows, anyWidth, anySplit, anyOpset},
    FormPreset{"onnx", Engine::Onnx, anyCache, anyRows, anyWidth, anySplit, anyOpset},
    FormPreset{"kvopt", Engine::Kvopt, anyCache, anyRows, anyWidth, anySplit, anyOpset},
    FormPreset{"primitive", Engine::Primitive, anyCache, anyRows, anyWidth, anySplit, anyOpset},
};

} // namespace

bool FormCell::operator==(const FormCell& other) const {
  return llvm::StringRef(target) == other.target && llvm::StringRef(refusal) == other.refusal;
}

llvm::ArrayRef<FormRow> formTable() { return formRows; }

llvm::ArrayRef<FormPreset> formPresets() { return presets; }

const FormPreset* findPreset(llvm::StringRef name) {
  const auto* found =
      llvm::find_if(presets, [&](const FormPreset& preset) { return name == preset.name; });
  return found == std::end(presets) ? nullptr : found;
}

FormCell cellOf(const Form& form) {
  for (const FormRow& row : formRows)
    if (row.engine == form.engine && row.cache == form.cache && row.split == form.split)
      return (form.isLatent ? row.latent : row.cells)[static_cast<size_t>(form.rows)];
  if (form.cache != CacheKind::Blocks)
    return no("Only a model with caches in blocks is written in several.");
  return no("The variants and tiles of a model are made of standard operators.");
}

CacheKind defaultCache(Engine engine, std::optional<int64_t> opset) {
  if (engine == Engine::Primitive || (engine == Engine::Onnx && opset == 23))
    return CacheKind::Grow;
  return CacheKind::Buffer;
}

int64_t opsetOf(Engine engine, CacheKind cache) {
  if (engine != Engine::Onnx)
    return 0;
  return cache == CacheKind::Grow ? 23 : 24;
}

} // namespace kvopt::driver
