// Trial: runs a model with inputs of certain roles, and looks for signs that the roles are wrong.
#pragma once

#include "driver/toolkit.h"
#include "ir/manifest/input_recipe.h"
#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "runtime/equivalence/comparison.h"
#include "runtime/session/session.h"
#include "runtime/session/token_feed.h"

#include "llvm/ADT/StringSet.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace kvopt::driver {

/// Result of one run with certain roles.
struct TrialResult {
  /// Sign of an error: "a token sees rows that no step has written". Empty if there is none.
  std::string failure;
  /// Whether the roles cannot be right. Otherwise other roles are only more likely.
  bool isDecisive = false;

  bool holds() const { return failure.empty(); }
};

/// Short runs of one model from empty caches, in one batch row unless the model fixes another
/// number. Tokens are fed one by one and must give
///
///   numbers as scores
///   the same scores if rows of caches that no step has written hold other numbers
///   other scores if the rows of the step before hold other numbers
///   other scores if all earlier values are one number and earlier keys hold other numbers: what is
///   mixed with that number is the token's own value
///   the same scores if they are fed in one step or in two, where the model takes those
class Trial {
public:
  /// `attention` are the caches that attention may read, by the names of their pasts. Tokens must
  /// see earlier ones only if `isRecovered`: attention that reads caches was recovered.
  static llvm::Expected<std::unique_ptr<Trial>>
  create(const ir::Model& model, const ir::Manifest& manifest, llvm::StringSet<> attention,
         bool isRecovered, std::vector<ir::InputRecipe> recipes, const Toolkit& toolkit);

  /// The reason that nothing can be learned from runs; empty if something can.
  const std::string& obstacle() const { return whyNot; }

  /// Runs with other roles in addition to the recipes, and with states that start as `caches` say.
  /// Fails if the model does not take the first step.
  llvm::Expected<TrialResult> run(llvm::ArrayRef<ir::InputRecipe> roles,
                                  llvm::ArrayRef<ir::ManifestCache> caches);

  /// Whether the scores of the last token depend on each of the first two.
  llvm::Expected<std::array<bool, 2>> remembers(llvm::ArrayRef<ir::InputRecipe> roles,
                                                llvm::ArrayRef<ir::ManifestCache> caches);

  /// Scores of the steps of the latest run that took all of them, one by one.
  std::vector<runtime::Tensor> takeScores() { return std::move(latest); }
  /// Whether the latest run had those scores.
  bool hasScores(llvm::ArrayRef<runtime::Tensor> scores) const;

  /// Whether the scores of the last token change if an input has that recipe rather than its role
  /// among these.
  llvm::Expected<bool> changesWith(llvm::ArrayRef<ir::InputRecipe> roles,
                                   const ir::InputRecipe& recipe);

  /// Whether the scores of a token stay the same if rows hold other numbers that the token before
  /// wrote, which is hidden. True if nothing can be learned.
  llvm::Expected<bool> hidesRows(llvm::ArrayRef<ir::InputRecipe> roles,
                                 llvm::ArrayRef<ir::ManifestCache> caches);

  /// Whether runs compare steps of several tokens with those of single ones, unless inputs have
  /// made-up rows.
  bool comparesChunks() const { return takesChunks && stepTokens == 1; }

private:
  /// Contents of rows of attention before the first step.
  enum class Rows { Zeros, OtherNumbers };

  Trial(const ir::Model& triedModel, llvm::StringSet<> caches,
        std::vector<ir::InputRecipe> userRecipes)
      : model(triedModel), attention(std::move(caches)), recipes(std::move(userRecipes)) {}

  void findObstacle();
  runtime::FeedOptions feedOf(llvm::ArrayRef<ir::InputRecipe> roles) const;
  llvm::Error start(Rows rows);
  /// Runs steps of these sizes from the start. Adds the scores of each.
  llvm::Expected<std::vector<runtime::Tensor>> scoresOf(llvm::ArrayRef<int64_t> sizes,
                                                        const runtime::FeedOptions& feed, Rows rows,
                                                        bool* seesEarlier = nullptr);
  /// Scores of the last token. The token before it is hidden, and its rows hold other numbers if
  /// `changesRows`. nullopt if it has no rows.
  llvm::Expected<std::optional<runtime::Tensor>>
  scoresAfterHidden(const runtime::FeedOptions& options, bool changesRows);
  llvm::Expected<std::vector<runtime::Tensor>> cacheContents() const;
  llvm::Expected<bool> movesRows(llvm::ArrayRef<runtime::Tensor> before) const;
  llvm::Error changeNewRows(runtime::Session& fork, llvm::ArrayRef<runtime::Tensor> before,
                            int64_t written, bool& isChanged) const;
  bool hasMadeUpRows(llvm::ArrayRef<ir::InputRecipe> roles) const;
  bool isMask(const ir::Value& input) const;
  bool isAttention(size_t index) const;
  /// Runs one step of a fork whose earlier values are one number and whose keys are shifted.
  llvm::Expected<runtime::Tensor> scoresAmongEqualValues(const runtime::FeedOptions& options,
                                                         double keyFactor);
  llvm::Expected<bool> seesItself(const runtime::FeedOptions& options);
  std::vector<std::vector<int64_t>> tokensOf(int64_t count) const;
  llvm::Expected<bool> isSameLast(const runtime::Tensor& one, const runtime::Tensor& other) const;
  llvm::Expected<TrialResult> compareChunks(const runtime::FeedOptions& feed,
                                            llvm::ArrayRef<runtime::Tensor> single);

  const ir::Model& model;
  llvm::StringSet<> attention;
  bool mustSeeEarlier = true;
  std::vector<ir::InputRecipe> recipes;
  llvm::ArrayRef<ir::ManifestCache> described; ///< caches of the current run
  std::unique_ptr<runtime::Session> session;
  std::string whyNot;
  std::vector<runtime::Tensor> latest;
  runtime::Tolerance tolerance;
  int64_t vocabulary = 1;
  std::optional<int64_t> otherToken; ///< the place of a token that differs from usual runs
  int64_t stepTokens = 1;            ///< number of tokens of the smallest step
  int64_t steps = 0;                 ///< number of such steps
  ir::Dim batchExtent;               ///< the first one of token ids
  bool takesChunks = true;           ///< whether steps may have other numbers of tokens
};

} // namespace kvopt::driver
