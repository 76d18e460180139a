// Ways of driving a model, which are tested before they are used.
#pragma once

#include "driver/roles/role_guesses.h"
#include "driver/toolkit.h"
#include "ir/manifest/input_recipe.h"
#include "ir/manifest/manifest.h"
#include "passes/analysis/interface/interface_facts.h"
#include "support/diagnostic.h"

#include <optional>
#include <string>

namespace kvopt::driver {

/// No role that fits an input's type holds.
class UndrivenError : public llvm::ErrorInfo<UndrivenError, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<UndrivenError, DiagnosticError>;
  using Base::Base;
  static const char ID;
};

/// A manifest whose roles were tested, as far as the model can be run.
struct TestedManifest {
  ir::Manifest manifest;
  /// Roles that the graph does not show by itself: those of the user, and those that runs showed in
  /// place of a guess.
  analysis::GivenRoles roles;
  /// A sentence about roles that are guesses, for a model that cannot be tried; empty otherwise.
  std::string untested;
};

/// A model that kvopt did not write, and the roles of its inputs. All outlive the search for
/// others.
struct GuessedRoles {
  const ir::Model& model;
  const RecoveredModel& recovered; ///< a copy
  const ir::Manifest& manifest;    ///< with the given roles, which come from recipes
  const analysis::GivenRoles& given;
  const std::vector<RoleGuess>& guesses;
  llvm::ArrayRef<ir::InputRecipe> recipes;
};

/// Roles that hold in runs.
struct FoundRoles {
  std::vector<InputRole> roles; ///< those in place of guesses
  std::string doubt;            ///< a sign against the roles; empty if there is none
};

/// Whether the model has inputs whose roles may be guesses: neither documented, nor caches or
/// outputs of an encoder, as far as types show.
bool mayHaveGuesses(const ir::Graph& graph);

/// Describes how to drive a model: its own manifest or, for a model that kvopt did not write, the
/// derived one. Roles that are guesses (guessesAmong) are tested by short runs (Trial), unless
/// there are none or the build has no runtime. Where they do not hold, others are tried, first for
/// one input, then for two. Recipes are the user's; they are not tested, and become roles as far as
/// they are some.
///
/// An UndrivenError that names the input if no roles hold.
llvm::Expected<TestedManifest> testedManifest(const ir::Model& model, const Toolkit& toolkit,
                                              llvm::ArrayRef<ir::InputRecipe> recipes = {});

/// Tests the roles of a model before it is rewritten, unless that has been done or the model has no
/// guesses. A RefusedError if no roles hold.
llvm::Error testOnce(const ir::Model& model, const Toolkit& toolkit,
                     llvm::ArrayRef<ir::InputRecipe> recipes,
                     std::optional<TestedManifest>& tested);

} // namespace kvopt::driver
