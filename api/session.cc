// Decoding.
#include "api/error.h"
#include "api/memory_reserve.h"
#include "api/objects.h"
#include "api/tensor.h"

#include "driver/first_step.h"
#include "driver/generate/generation.h"
#include "runtime/session/token_choice.h"
#include "support/json.h"

using namespace kvopt;
using namespace kvopt::api;
using namespace kvopt::driver;
using namespace kvopt::runtime;

namespace kvopt::api {
namespace {

using Mode = SessionOptions::Mode;

llvm::Expected<SessionOptions> sessionOptions(llvm::ArrayRef<OptionText> texts, int64_t batch) {
  if (batch < 1)
    return usageError("a session of {} sequences", batch);
  SessionOptions options;
  options.batch = batch;
  std::optional<Mode> mode;
  OptionReader reader(Command::Run, texts);
  reader.add("--mode", mode, {{"shared", Mode::AsManifest}, {"stateful", Mode::Stateful}});
  reader.add("--capacity", options.capacity);
  reader.add("--threads", options.threads);
  reader.add("--folded-constants-limit", options.foldedConstantsLimit);
  if (llvm::Error error = reader.finish())
    return error;
  // Without a capacity, buffers grow as far as the model allows.
  options.mode = mode.value_or(options.capacity == 0 ? Mode::Stateful : Mode::AsManifest);
  return options;
}

std::unique_ptr<kvopt_session> wrap(std::shared_ptr<const RunnableModel> model,
                                    std::unique_ptr<Session> session) {
  auto made = std::make_unique<kvopt_session>();
  made->model = std::move(model);
  made->session = std::move(session);
  made->feed = std::make_unique<TokenFeed>(*made->session, made->feedOptions);
  return made;
}

/// Views of named tensors. `Tensor` is a kvopt_tensor or a DLManagedTensor.
template <class GetView>
llvm::Expected<std::vector<NamedView>> namedViews(const char* const* names, const void* tensors,
                                                  size_t count, const GetView& view) {
  if (count != 0) {
    if (llvm::Error error = checkArgument(names, "names"))
      return error;
    if (llvm::Error error = checkArgument(tensors, "tensors"))
      return error;
  }
  std::vector<NamedView> views;
  for (size_t i = 0; i < count; ++i) {
    if (llvm::Error error = checkArgument(names[i], "names[i]"))
      return error;
    llvm::Expected<TensorView> made = view(i);
    if (!made) {
      Diagnostic diagnostic = takeDiagnostic(made.takeError());
      diagnostic.value = names[i];
      return makeError(std::move(diagnostic));
    }
    views.push_back({names[i], std::move(*made)});
  }
  return views;
}

llvm::Expected<std::vector<NamedView>> dlpackViews(const char* const* names,
                                                   DLManagedTensor* const* tensors, size_t count) {
  return namedViews(names, tensors, count, [&](size_t i) -> llvm::Expected<TensorView> {
    if (llvm::Error error = checkArgument(tensors[i], "tensors[i]"))
      return error;
    return viewOf(*tensors[i]);
  });
}

llvm::Error checkOutput(const kvopt_session* session, size_t index, const void* output) {
  if (llvm::Error error = checkArgument(session, "session"))
    return error;
  if (llvm::Error error = checkArgument(output, "output"))
    return error;
  if (index < session->result.outputs.size())
    return llvm::Error::success();
  return usageError("output {} is out of range: the latest step has {} outputs", index,
                    session->result.outputs.size());
}

OrderedJson statisticsOf(const kvopt_session& driven) {
  const Session& session = *driven.session;
  OrderedJson json = {{"schema", "kvopt/session/1"}, {"steps", session.statistics().steps}};
  json.update(memoryJson(session));
  if (const std::string& untested = driven.model->prepared.untested; !untested.empty())
    json["remark"] = untested;
  return json;
}

/// A step with the caller's inputs.
llvm::Error stepWith(kvopt_session& driven, llvm::ArrayRef<NamedView> views, int64_t newTokens) {
  if (newTokens < 1)
    return usageError("a step of {} tokens", newTokens);
  const Session& session = *driven.session;
  if (!driven.limits)
    driven.limits = TokenLimits::of(session.graph(), session.manifest().inputs);
  if (llvm::Error error = driven.limits->check(views))
    return error;
  return driven.session->step(views, newTokens, driven.result);
}

/// Runs `call` on a session that is not null.
template <class Session, class Call> kvopt_error* withSession(Session* session, const Call& call) {
  return guarded([&]() -> llvm::Error {
    if (llvm::Error error = checkArgument(session, "session"))
      return error;
    return call(*session);
  });
}

/// The same for calls that use what caches hold. The tokens of a model without caches are kept for
/// the next call, and there are no rows to change.
template <class Session, class Call> kvopt_error* withCaches(Session* session, const Call& call) {
  return withSession(session, [&](Session& driven) -> llvm::Error {
    if (driven.session->cacheCount() == 0)
      return unsupported("the model has no caches").hint("kvopt_session_reset starts over");
    return call(driven);
  });
}

} // namespace
} // namespace kvopt::api

kvopt_error* kvopt_session_create(const kvopt_model* model, int64_t batch,
                                  const kvopt_option* options, size_t option_count,
                                  kvopt_session** session) {
  return guarded([&]() -> llvm::Error {
    const MemoryReserve reserve;
    if (llvm::Error error = checkArgument(model, "model"))
      return error;
    if (llvm::Error error = checkArgument(session, "session"))
      return error;
    auto texts = optionTexts(options, option_count);
    if (!texts)
      return texts.takeError();
    auto settings = sessionOptions(*texts, batch);
    if (!settings)
      return settings.takeError();
    auto runnable = model->runnable();
    if (!runnable)
      return runnable.takeError();
    const PreparedModel& prepared = (*runnable)->prepared;
    if (settings->capacity != 0)
      if (llvm::Error error = checkCapacity(prepared.manifest, settings->capacity))
        return withFile(std::move(error), model->source.path);
    auto made = Session::create(*prepared.model, (*runnable)->toolkit->runner->kernels(),
                                prepared.manifest, *settings);
    if (!made)
      return withFile(made.takeError(), model->source.path);
    *session = wrap(*runnable, std::move(*made)).release();
    return llvm::Error::success();
  });
}

void kvopt_session_free(kvopt_session* session) { delete session; }

kvopt_error* kvopt_session_feed(kvopt_session* session, const int64_t* tokens, int64_t count) {
  return withSession(session, [&](kvopt_session& driven) -> llvm::Error {
    if (count < 1)
      return usageError("{} tokens for each sequence", count);
    if (llvm::Error error = checkArgument(tokens, "tokens"))
      return error;
    const auto rows = static_cast<size_t>(driven.session->batch());
    // Room is checked before the tokens are copied.
    if (llvm::Error error = driven.session->checkRoom(count))
      return error;
    driven.tokens.resize(rows);
    for (size_t row = 0; row < rows; ++row)
      driven.tokens[row].assign(tokens + static_cast<int64_t>(row) * count,
                                tokens + static_cast<int64_t>(row + 1) * count);
    return driven.feed->run(driven.tokens, driven.result);
  });
}

kvopt_error* kvopt_session_step(kvopt_session* session, const char* const* names,
                                const kvopt_tensor* inputs, size_t input_count,
                                int64_t new_tokens) {
  return withSession(session, [&](kvopt_session& driven) -> llvm::Error {
    auto views =
        namedViews(names, inputs, input_count, [&](size_t i) { return viewOf(inputs[i]); });
    if (!views)
      return views.takeError();
    return stepWith(driven, *views, new_tokens);
  });
}

kvopt_error* kvopt_session_step_dlpack(kvopt_session* session, const char* const* names,
                                       DLManagedTensor* const* inputs, size_t input_count,
                                       int64_t new_tokens) {
  return withSession(session, [&](kvopt_session& driven) -> llvm::Error {
    auto views = dlpackViews(names, inputs, input_count);
    if (!views)
      return views.takeError();
    return stepWith(driven, *views, new_tokens);
  });
}

size_t kvopt_session_output_count(const kvopt_session* session) {
  return session ? session->result.outputs.size() : 0;
}

const char* kvopt_session_output_name(const kvopt_session* session, size_t index) {
  return index < kvopt_session_output_count(session) ? session->result.outputs[index].name.c_str()
                                                     : nullptr;
}

kvopt_error* kvopt_session_output(const kvopt_session* session, size_t index,
                                  kvopt_tensor* output) {
  return guarded([&]() -> llvm::Error {
    if (llvm::Error error = checkOutput(session, index, output))
      return error;
    *output = borrowed(session->result.outputs[index].tensor.view);
    return llvm::Error::success();
  });
}

kvopt_error* kvopt_session_output_dlpack(const kvopt_session* session, size_t index,
                                         DLManagedTensor** output) {
  return guarded([&]() -> llvm::Error {
    if (llvm::Error error = checkOutput(session, index, output))
      return error;
    auto made = toDlpack(session->result.outputs[index].tensor);
    if (!made)
      return made.takeError();
    *output = *made;
    return llvm::Error::success();
  });
}

kvopt_error* kvopt_session_choose(const kvopt_session* session, int64_t row,
                                  const kvopt_option* options, size_t option_count,
                                  int64_t* token) {
  return withSession(session, [&](const kvopt_session& driven) -> llvm::Error {
    if (llvm::Error error = checkArgument(token, "token"))
      return error;
    if (row < 0 || row >= driven.session->batch())
      return usageError("sequence {} is out of range: the session has {} sequences", row,
                        driven.session->batch());
    auto texts = optionTexts(options, option_count);
    if (!texts)
      return texts.takeError();
    SamplingWords words;
    OptionReader reader(Command::Run, *texts);
    reader.add("--temperature", words.temperature);
    reader.add("--top-k", words.topK);
    reader.add("--top-p", words.topP);
    reader.add("--seed", words.seed);
    if (llvm::Error error = reader.finish())
      return error;
    const SamplingOptions sampling = words.options();
    if (llvm::Error error = checkSampling(sampling))
      return error;
    auto logits = findLogits(driven.result);
    if (!logits)
      return logits.takeError();
    TokenChooser chooser(sampling);
    auto chosen = chooser.choose(**logits, {driven.feed->length(), row});
    if (!chosen)
      return chosen.takeError();
    *token = *chosen;
    return llvm::Error::success();
  });
}

int64_t kvopt_session_length(const kvopt_session* session) {
  return session ? session->feed->length() : 0;
}
int64_t kvopt_session_capacity(const kvopt_session* session) {
  return session ? session->session->capacity() : 0;
}
int64_t kvopt_session_batch(const kvopt_session* session) {
  return session ? session->session->batch() : 0;
}

kvopt_error* kvopt_session_crop(kvopt_session* session, int64_t tokens) {
  return withCaches(session, [&](kvopt_session& driven) { return driven.session->crop(tokens); });
}

kvopt_error* kvopt_session_shift(kvopt_session* session, int64_t kept, int64_t dropped) {
  return withCaches(session,
                    [&](kvopt_session& driven) { return driven.session->shift(kept, dropped); });
}

kvopt_error* kvopt_session_reset(kvopt_session* session) {
  return withSession(session, [](kvopt_session& driven) -> llvm::Error {
    if (llvm::Error error = driven.session->reset())
      return error;
    driven.feed = std::make_unique<TokenFeed>(*driven.session, driven.feedOptions);
    return llvm::Error::success();
  });
}

kvopt_error* kvopt_session_fork(const kvopt_session* session, kvopt_session** fork) {
  return withCaches(session, [&](const kvopt_session& driven) -> llvm::Error {
    if (llvm::Error error = checkArgument(fork, "fork"))
      return error;
    auto made = driven.session->fork();
    if (!made)
      return made.takeError();
    *fork = wrap(driven.model, std::move(*made)).release();
    return llvm::Error::success();
  });
}

kvopt_error* kvopt_session_reorder(kvopt_session* session, const int64_t* rows, size_t row_count) {
  return withCaches(session, [&](kvopt_session& driven) -> llvm::Error {
    if (llvm::Error error = checkArgument(rows, "rows"))
      return error;
    return driven.session->reorder({rows, row_count});
  });
}

kvopt_error* kvopt_session_seed(kvopt_session* session, const char* const* names,
                                const kvopt_tensor* caches, size_t cache_count, int64_t tokens) {
  return withCaches(session, [&](kvopt_session& driven) -> llvm::Error {
    auto views =
        namedViews(names, caches, cache_count, [&](size_t i) { return viewOf(caches[i]); });
    if (!views)
      return views.takeError();
    return driven.session->seed(*views, tokens);
  });
}

kvopt_error* kvopt_session_seed_dlpack(kvopt_session* session, const char* const* names,
                                       DLManagedTensor* const* caches, size_t cache_count,
                                       int64_t tokens) {
  return withCaches(session, [&](kvopt_session& driven) -> llvm::Error {
    auto views = dlpackViews(names, caches, cache_count);
    if (!views)
      return views.takeError();
    return driven.session->seed(*views, tokens);
  });
}

kvopt_error* kvopt_session_save(const kvopt_session* session, const char* path) {
  return withCaches(session, [&](const kvopt_session& driven) -> llvm::Error {
    if (llvm::Error error = checkArgument(path, "path"))
      return error;
    return driven.session->save(path);
  });
}

kvopt_error* kvopt_session_load(kvopt_session* session, const char* path) {
  return withCaches(session, [&](kvopt_session& driven) -> llvm::Error {
    if (llvm::Error error = checkArgument(path, "path"))
      return error;
    return driven.session->load(path);
  });
}

size_t kvopt_session_cache_count(const kvopt_session* session) {
  return session ? session->session->cacheCount() : 0;
}

const char* kvopt_session_cache_name(const kvopt_session* session, size_t index) {
  return index < kvopt_session_cache_count(session)
             ? session->session->cacheInfo(index).past.c_str()
             : nullptr;
}

kvopt_error* kvopt_session_cache_dlpack(const kvopt_session* session, size_t index,
                                        DLManagedTensor** rows) {
  return withSession(session, [&](const kvopt_session& driven) -> llvm::Error {
    if (llvm::Error error = checkArgument(rows, "rows"))
      return error;
    if (index >= driven.session->cacheCount())
      return usageError("cache {} is out of range: the session has {} caches", index,
                        driven.session->cacheCount());
    auto held = driven.session->exportedCacheRows(index);
    if (!held)
      return held.takeError();
    auto made = toDlpack(std::move(*held));
    if (!made)
      return made.takeError();
    *rows = *made;
    return llvm::Error::success();
  });
}

kvopt_error* kvopt_session_statistics(const kvopt_session* session, kvopt_bytes** json) {
  return withSession(session, [&](const kvopt_session& driven) -> llvm::Error {
    if (llvm::Error error = checkArgument(json, "json"))
      return error;
    *json = new kvopt_bytes{
        statisticsOf(driven).dump(-1, ' ', false, OrderedJson::error_handler_t::replace)};
    return llvm::Error::success();
  });
}
