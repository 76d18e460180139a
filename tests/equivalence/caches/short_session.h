// A session of a few steps, whose copies tests count.
#pragma once

#include "driver/toolkit.h"
#include "driver/verify/plan.h"
#include "runtime/equivalence/equivalence.h"
#include "runtime/session/session.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {

/// Four tokens and one more in one batch row, or the steps that the model's fixed extents allow.
struct ShortSession {
  runtime::EquivalencePlan plan;
  std::unique_ptr<runtime::Session> session;

  ShortSession(const ir::Model& model, const ir::Manifest& manifest, int64_t bufferRows,
               const driver::Toolkit& toolkit) {
    plan.prompt = 4;
    plan.chunks = {};
    plan.decodeSteps = 1;
    plan.batch = 1;
    plan.vocabulary = valueOrThrow(runtime::vocabularyOf(model.graph()));
    plan = driver::fittedPlan(plan, model.graph(), manifest);
    runtime::SessionOptions options;
    options.batch = plan.batch;
    options.capacity = bufferRows;
    session =
        valueOrThrow(runtime::Session::create(model, toolkit.runner->kernels(), manifest, options));
  }

  /// Bytes of caches that were copied so far.
  int64_t copied() const {
    const runtime::SessionStatistics& counters = session->statistics();
    return counters.pastBytesCopied + counters.inPlaceBytesCopied + counters.cacheBytesMoved;
  }
};

} // namespace kvopt
