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
  std::shared_ptr<runtime::ThreadPool> pool; ///< shared by all models and the reads of memory
  int64_t batch = 1;
  /// Capacity in tokens of caches whose capacity is symbolic.
  int64_t capacity = 0;
};

/// Runs a model according to its manifest with synthetic tokens, which depend only on row and
/// position: all models read the same text. Only the model's runs are timed, not the preparation of
/// its inputs. A model without caches computes the whole sequence at every step.
class BenchSubject {
public:
  /// Imports the model and determines how to drive it.
  static llvm::Expected<std::unique_ptr<BenchSubject>> open(const std::string& path,
                                                            const driver::Toolkit& toolkit);
  BenchSubject(const BenchSubject&) = delete;
  BenchSubject& operator=(const BenchSubject&) = delete;

  /// Creates a new session. Fails if Session::create does, and for models that only take several
  /// tokens at a time.
  llvm::Error start(const SubjectSettings& settings);
  /// Releases the session's memory.
  void stop();

  /// Starts with an empty session and runs all tokens in one step (one by one if the model takes
  /// single tokens only). Returns seconds.
  llvm::Expected<double> prefill(int64_t tokens);
  /// Changes the length of the session to `depth` tokens: crops tokens if caches allow it, and
  /// prefills missing ones in chunks.
  llvm::Error bringTo(int64_t depth);
  /// Runs one token per row after `length()` earlier ones. Returns seconds.
  llvm::Expected<double> decode() { return step(1); }
  /// Reads everything that a decode step must read, once. Returns seconds.
  double readFloor(const runtime::MemorySpans& rows) const;

  int64_t length() const;
  int64_t weightBytes() const { return weights.spans.bytes(); }
  /// Valid rows of the caches.
  llvm::Expected<runtime::MemorySpans> cacheRows() const { return runtime::cacheSpans(*session); }
  /// Memory of the latest step in addition to weights and caches.
  int64_t temporaryBytes() const;

private:
  BenchSubject() = default;
  llvm::Expected<double> step(int64_t newTokens);
  /// Number of tokens per step, at most `wanted`, that the model takes.
  int64_t stepTokens(int64_t wanted) const;
  bool hasCaches() const { return session->cacheCount() != 0; }
  llvm::Error restart();

  std::unique_ptr<ir::Model> model;
  const driver::Toolkit* known = nullptr;
  ir::Manifest manifest;
  runtime::WeightSpans weights;
  int64_t vocabulary = 1;
  bool isSingleStep = false;   ///< whether it takes one token at a time
  int64_t cachelessLength = 0; ///< length of the sequence of a model without caches
  std::shared_ptr<runtime::ThreadPool> pool;
  std::unique_ptr<runtime::Session> session;
};

} // namespace kvopt::cli
