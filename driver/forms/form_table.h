// Which forms are written, by which target, and why the others are not: one table.
#pragma once

#include "driver/forms/form.h"
#include "passes/targets/target.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <array>
#include <string>

namespace kvopt::driver {

/// One cell of the table. Exactly one of the two is set.
struct FormCell {
  const char* target = nullptr;  ///< the target that writes the form
  const char* refusal = nullptr; ///< why the form is not written, as a sentence

  bool isWritten() const { return target != nullptr; }
  bool operator==(const FormCell& other) const;
};

/// The cells of one engine, one kind of cache and one way to divide the model.
struct FormRow {
  Engine engine;
  CacheKind cache;
  SplitKind split;
  /// By RowKind: keys and values as they are, and compressed to latent rows.
  std::array<FormCell, rowKindCount> cells;
  std::array<FormCell, rowKindCount> latent;
};

/// The table. Forms without a row differ from one of `None` by `split` only and are refused.
llvm::ArrayRef<FormRow> formTable();

/// The cell of a form.
FormCell cellOf(const Form& form);

/// A name for several options, which `--to` takes as well: `int8-ring` is `--to kvopt --cache ring
/// --rows int8`. Axes that the preset leaves open may be given with it.
struct FormPreset {
  const char* name;
  Engine engine;
  std::optional<CacheKind> cache;
  std::optional<RowKind> rows;
  std::optional<bool> isLatent;
  std::optional<SplitKind> split;
  std::optional<int64_t> opset;
};
llvm::ArrayRef<FormPreset> formPresets();
const FormPreset* findPreset(llvm::StringRef name);

/// The kind of cache that a form has where none is chosen.
CacheKind defaultCache(Engine engine, std::optional<int64_t> opset);

/// The opset whose operators the form needs: 23 or 24 for ONNX's Attention, 0 for other engines.
int64_t opsetOf(Engine engine, CacheKind cache);

/// The name of the target that writes the form, with the size where one is given: `blocks:64`.
/// The form is one that is written.
std::string targetText(const Form& form);

/// The target that writes the form. Fails for a form that is not written, and a size that it does
/// not take.
llvm::Expected<targets::TargetChoice> targetFor(const Form& form,
                                                const targets::TargetRegistry& registry);

/// The form that a target's name says, as in `blocks:64`. Fails for a name that is neither a preset
/// nor an engine.
llvm::Expected<Form> presetForm(llvm::StringRef text);

/// The table and the presets for a terminal, and as a page.
std::string formsText(const targets::TargetRegistry& registry);
std::string formsMarkdown(const targets::TargetRegistry& registry);

} // namespace kvopt::driver
