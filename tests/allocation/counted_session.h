// A session whose steps are counted: what they ask of the allocator and of the heap.
#pragma once

#include "tests/allocation/heap_counter.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {

/// Requests within Session::step; the allocator's are among the heap's.
struct Requests {
  uint64_t allocator = 0;
  uint64_t heap = 0;
};

/// Feeds a session through one StepResult.
class CountedSession {
public:
  CountedSession(const DrivenModel& driven, const runtime::KernelRegistry& kernels,
                 runtime::SessionOptions options)
      : session(valueOrThrow(
            runtime::Session::create(*driven.model, kernels, driven.manifest, options))),
        vocabulary(valueOrThrow(runtime::vocabularyOf(driven.model->graph()))) {}

  void step(int64_t tokens) {
    runtime::DecoderStep input;
    input.pastLength = session->length();
    for (int64_t row = 0; row < session->batch(); ++row) {
      input.tokens.emplace_back();
      for (int64_t i = 0; i < tokens; ++i)
        input.tokens.back().push_back((input.pastLength + i + row) % vocabulary);
    }
    std::vector<runtime::NamedTensor> inputs =
        valueOrThrow(runtime::decoderInputs(session->callerInputs(), input, inputMemory));
    std::vector<runtime::NamedView> views;
    for (const runtime::NamedTensor& given : inputs)
      views.push_back({given.name, given.tensor.view});
    uint64_t allocatorBefore = session->allocator()->allocations();
    uint64_t heapBefore = heapRequests();
    successOrThrow(session->step(views, tokens, result));
    requests.heap += heapRequests() - heapBefore;
    requests.allocator += session->allocator()->allocations() - allocatorBefore;
  }
  /// Requests of `steps` decoding steps.
  Requests decode(int64_t steps) {
    requests = {};
    for (int64_t i = 0; i < steps; ++i)
      step(1);
    return requests;
  }
  /// Chunks up to `tokens` tokens in the cache.
  void fill(int64_t tokens) {
    while (session->length() < tokens)
      step(std::min<int64_t>(64, tokens - session->length()));
  }
  const runtime::RunStatistics& last() const { return session->statistics().lastRun; }

  std::unique_ptr<runtime::Session> session;

private:
  std::shared_ptr<runtime::Allocator> inputMemory = std::make_shared<runtime::Allocator>();
  int64_t vocabulary;
  runtime::StepResult result;
  Requests requests;
};

} // namespace kvopt
