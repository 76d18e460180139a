// Table of forms: the target that writes each form, or the reason that the form is not written.
#pragma once

#include "driver/forms/form.h"
#include "passes/targets/target.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <array>
#include <string>

namespace kvopt::driver {

/// One cell of the table. Exactly one member is set.
struct FormCell {
  const char* target = nullptr;  ///< the target that writes the form
  const char* refusal = nullptr; ///< the reason that the form is not written, as a sentence

  bool isWritten() const { return target != nullptr; }
  bool operator==(const FormCell& other) const;
};

/// The cells of one engine, one kind of cache and one way to divide the model.
struct FormRow {
  Engine engine;
  CacheKind cache;
  SplitKind split;
  /// Cells by RowKind: `cells` for keys and values as they are, `latent` for compressed rows.
  std::array<FormCell, rowKindCount> cells;
  std::array<FormCell, rowKindCount> latent;
};

/// The table. A form without a row differs only in `split` from a form that has one, and is
/// refused.
llvm::ArrayRef<FormRow> formTable();

/// The cell of a form.
FormCell cellOf(const Form& form);

/// A name for several options, as a value of `--to`: `int8-ring` is `--to kvopt --cache ring --rows
/// int8`. Other options may set the axes that the preset leaves open.
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

/// The kind of cache of a form if no option chooses one.
CacheKind defaultCache(Engine engine, std::optional<int64_t> opset);

/// The opset that the form requires: 23 or 24 for ONNX's Attention, 0 for other engines.
int64_t opsetOf(Engine engine, CacheKind cache);

/// The name of the target that writes the form, with the size if the form has one: `blocks:64`.
/// Requires a form that is written.
std::string targetText(const Form& form);

/// The target that writes the form. Fails for a form that is not written, and for a size that the
/// target does not accept.
llvm::Expected<targets::TargetChoice> targetFor(const Form& form,
                                                const targets::TargetRegistry& registry);

/// The form that a preset or an engine names, as in `blocks:64`. Fails for any other name.
llvm::Expected<Form> presetForm(llvm::StringRef text);

/// The table and the presets, as text for a terminal and as Markdown.
std::string formsText(const targets::TargetRegistry& registry);
std::string formsMarkdown(const targets::TargetRegistry& registry);

} // namespace kvopt::driver
