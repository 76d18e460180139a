// One model under measurement: brought to a depth of context, stepped, and timed.
#pragma once

#include "cli/support/command.h"
#include "ir/model.h"
#include "runtime/equivalence/read_floor.h"
#include "runtime/session/session.h"

#include <memory>
#include <string>

namespace kvopt::cli {

struct SubjectSettings {
  std::shared_ptr<runtime::ThreadPool> pool; ///< that all models and the readings of memory share
  int64_t batch = 1;
  /// Tokens that caches whose capacity is open get room for.
  int64_t capacity = 0;
};

/// Drives a model under its own contract with made-up tokens, which depend on row and position
/// only: all models read the same text. Only the runs of the model are timed, not the making of its
/// inputs. A model without caches computes the whole sequence anew at every step.
class BenchSubject {
public:
  /// Imports the model and finds out how to drive it.
  static llvm::Expected<std::unique_ptr<BenchSubject>> open(const std::string& path,
                                                            const driver::Toolkit& toolkit);
  BenchSubject(const BenchSubject&) = delete;
  BenchSubject& operator=(const BenchSubject&) = delete;

  /// A fresh session. Fails where Session::create does, and for models that take several tokens at
  /// a time only.
  llvm::Error start(const SubjectSettings& settings);
  /// Gives the session's memory back.
  void stop();

  /// From an empty session, all tokens in one step (one by one where the model takes no more);
  /// seconds.
  llvm::Expected<double> prefill(int64_t tokens);
  /// Makes the session `depth` tokens long: cuts off what is too much, where caches allow that, and
  /// prefills the rest in chunks.
  llvm::Error bringTo(int64_t depth);
  /// One token a row, after `length()` earlier ones; seconds.
  llvm::Expected<double> decode() { return step(1); }
  /// Reads once what such a step has to read; seconds.
  double readFloor(const runtime::MemorySpans& rows) const;

  int64_t length() const;
  int64_t weightBytes() const { return weights.spans.bytes(); }
  /// The valid rows of the caches.
  llvm::Expected<runtime::MemorySpans> cacheRows() const { return runtime::cacheSpans(*session); }
  /// That the latest step needed beside weights and caches.
  int64_t temporaryBytes() const;

private:
  BenchSubject() = default;
  llvm::Expected<double> step(int64_t newTokens);
  /// How many of the tokens that are wanted the model takes at a time.
  int64_t stepTokens(int64_t wanted) const;
  bool hasCaches() const { return session->cacheCount() != 0; }
  llvm::Error restart();

  std::unique_ptr<ir::Model> model;
  const driver::Toolkit* known = nullptr;
  ir::Manifest manifest;
  runtime::WeightSpans weights;
  int64_t vocabulary = 1;
  bool isSingleStep = false;   ///< takes one token at a time
  int64_t cachelessLength = 0; ///< of the sequence of a model without caches
  std::shared_ptr<runtime::ThreadPool> pool;
  std::unique_ptr<runtime::Session> session;
};

} // namespace kvopt::cli
