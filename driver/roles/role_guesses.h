// Roles of inputs that are guesses: the graph does not determine them.
#pragma once

#include "driver/recover.h"
#include "ir/manifest/input_recipe.h"

#include <variant>

namespace kvopt::driver {

/// Contents of a state before the first step: ManifestCache::initial.
struct StateStart {
  std::string input;
  std::vector<double> contents;
};

/// Role of an input: an entry of Manifest::lengths or Manifest::inputs, or the start of a state.
/// The extents of the second may be empty; they then follow from the input's type.
using InputRole = std::variant<ir::ManifestLength, ir::ManifestInput, StateStart>;

/// An input whose role is a guess.
struct RoleGuess {
  const ir::Value* input = nullptr; ///< in the recovered graph
  /// Other roles, the most likely first.
  std::vector<InputRole> others;
  /// Whether the role is to feed zeros or ones at every step, because nothing else is known.
  bool isConstant = false;
  /// Whether the graph or the input's name shows its meaning. Otherwise its role is not known if
  /// other roles hold, too.
  bool isShown = false;
};

/// The guesses among the roles of a derived manifest. Certain are the roles of token ids, of
/// documented inputs unless a mask has a fixed number of columns, of operands whose meaning an
/// operator defines, of flags that select a branch, and of inputs with a recipe. Outputs of an
/// encoder have no role. That a state of integers starts with zeros is a guess, too.
///
/// Other roles are those that fit the input's type. A role that the analysis of masks or of writes
/// to caches suggests comes first, then roles of the same kind as the guess.
std::vector<RoleGuess> guessesAmong(const RecoveredModel& recovered, const ir::Manifest& manifest,
                                    llvm::ArrayRef<ir::InputRecipe> recipes);

/// Name of the input that a role is for.
llvm::StringRef inputOf(const InputRole& role);

void addRole(const InputRole& role, analysis::GivenRoles& given);

/// The derived manifest with other roles.
ir::Manifest withRoles(const RecoveredModel& recovered, const ir::Manifest& manifest,
                       llvm::ArrayRef<InputRole> roles);

/// The user's recipes that are roles; extents that a recipe does not give are empty.
std::vector<InputRole> rolesOf(const ir::Graph& graph, llvm::ArrayRef<ir::InputRecipe> recipes);

/// The role of an input in a manifest as a recipe; nullopt if the manifest has none.
std::optional<ir::InputRecipe> recipeOf(const ir::Manifest& manifest, llvm::StringRef input);

} // namespace kvopt::driver
