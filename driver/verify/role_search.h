// The search for roles that hold.
#pragma once

#include "driver/roles/driving.h"
#include "driver/verify/trial.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace kvopt::driver {

/// Tries roles of inputs, first for one guess, then for two, until some pass all tests.
class RoleSearch {
public:
  /// The manifest follows from the given roles. References must outlive this object.
  RoleSearch(const RecoveredModel& recoveredModel, const ir::Manifest& derived,
             const analysis::GivenRoles& givenRoles, Trial& runs, std::vector<RoleGuess> guessed)
      : recovered(recoveredModel), manifest(derived), given(givenRoles), trial(runs),
        guesses(std::move(guessed)) {}

  /// Roles in place of guesses; empty if the guesses hold. An error if none hold.
  llvm::Expected<std::vector<InputRole>> run();

  /// A sign against the roles that run() gives; empty if there is none.
  const std::string& doubt() const { return doubtful; }

private:
  llvm::Expected<TrialResult> test(llvm::ArrayRef<InputRole> roles);
  bool holds(llvm::ArrayRef<InputRole> roles);
  std::optional<std::vector<InputRole>> tryOne();
  std::optional<std::vector<InputRole>> tryTwo();

  /// Whether the model reads a mask's elements, and not only its extents.
  bool isRead(const RoleGuess& guess, llvm::ArrayRef<ir::InputRecipe> recipes);
  /// Whether the scores change if an input has another role; `number` is that of a constant. A
  /// value that the model does not take says nothing about the one that it does.
  bool changesWith(const ir::Value& input, ir::InputFeed feed, double number,
                   llvm::ArrayRef<ir::InputRecipe> recipes);

  /// A sign against roles that hold: other roles of an input that nothing else shows hold, too, and
  /// give other scores, or no score depends on the input. Empty if there is no such input.
  std::string rivals(llvm::ArrayRef<InputRole> found);
  /// Whether roles lose an early token that others keep, such as a place of new rows that stays the
  /// same.
  bool forgetsMore(llvm::ArrayRef<InputRole> roles, llvm::ArrayRef<InputRole> others);
  llvm::Expected<std::array<bool, 2>> remembers(llvm::ArrayRef<InputRole> roles);

  /// The roles of guesses in a manifest.
  std::vector<ir::InputRecipe> recipesOf(const ir::Manifest& hypothesis) const;
  llvm::Error refusal(const TrialResult& result) const;

  const RecoveredModel& recovered;
  const ir::Manifest& manifest;
  const analysis::GivenRoles& given;
  Trial& trial;
  std::vector<RoleGuess> guesses;
  const ir::Value* blamed = nullptr; ///< an input that changes scores, whatever it is
  std::string doubtful;
  size_t trials = 0;
  bool mustHide = true;    ///< whether masks must hide what they say
  bool seesHidden = false; ///< whether a mask did not
};

/// Runner::findRoles.
llvm::Expected<FoundRoles> searchRoles(const GuessedRoles& guessed, const Toolkit& toolkit);

/// Runner::testRoles. Roles that nothing can be learned about are accepted.
llvm::Error testStored(const ir::Model& model, const ir::Manifest& manifest,
                       llvm::ArrayRef<ir::InputRecipe> recipes, const Toolkit& toolkit);

} // namespace kvopt::driver
