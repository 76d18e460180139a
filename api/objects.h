// Objects for the handles of the C interface.
#pragma once

#include "driver/generate/request.h"
#include "driver/options/option_reader.h"
#include "driver/verify/verification.h"
#include "kvopt/kvopt.h"
#include "runtime/session/session.h"
#include "runtime/session/token_feed.h"

#include <memory>
#include <mutex>
#include <string>

namespace kvopt::api {

/// A toolkit and a model that is ready to run, as its manifest says. Both never change.
struct RunnableModel {
  std::shared_ptr<const driver::Toolkit> toolkit;
  driver::PreparedModel prepared;
};

/// The options of a call. Fails for a null pointer where there are some.
llvm::Expected<std::vector<driver::OptionText>> optionTexts(const kvopt_option* options,
                                                            size_t count);

} // namespace kvopt::api

struct kvopt_bytes {
  std::string text;
};

struct kvopt_model {
  std::shared_ptr<const kvopt::driver::Toolkit> toolkit;
  kvopt::driver::ModelSource source;

  /// The model as sessions run it, made by the first of them.
  llvm::Expected<std::shared_ptr<const kvopt::api::RunnableModel>> runnable() const;

private:
  mutable std::mutex mutex;
  mutable std::shared_ptr<const kvopt::api::RunnableModel> made;
};

struct kvopt_session {
  std::shared_ptr<const kvopt::api::RunnableModel> model;
  std::unique_ptr<kvopt::runtime::Session> session;
  kvopt::runtime::FeedOptions feedOptions;
  std::unique_ptr<kvopt::runtime::TokenFeed> feed;
  std::optional<kvopt::runtime::TokenLimits> limits; ///< for steps with the caller's inputs
  kvopt::runtime::StepResult result;
  /// Tokens of the latest call, a row for each sequence; its storage is used again.
  std::vector<std::vector<int64_t>> tokens;
};
