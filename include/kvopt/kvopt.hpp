// kvopt's interface for C++17: the objects of kvopt.h with destructors, and errors as exceptions.
//
// Every function that fails throws kvopt::Error and has the guarantees of the C function that it
// calls. A moved-from object may only be assigned to or destroyed.
#pragma once

#include "kvopt/kvopt.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kvopt {

/// A failure, as kvopt_error describes it. `what()` is all of it on one line.
class Error : public std::runtime_error {
public:
  explicit Error(const kvopt_error* error)
      : std::runtime_error(kvopt_error_text(error)), errorKind(kvopt_error_get_kind(error)),
        errorCode(kvopt_error_code(error)), text(kvopt_error_message(error)),
        errorFile(kvopt_error_file(error)), errorNode(kvopt_error_node(error)),
        errorHint(kvopt_error_hint(error)), errorReport(kvopt_error_report(error)) {}

  kvopt_error_kind kind() const { return errorKind; }
  const std::string& code() const { return errorCode; }
  const std::string& message() const { return text; }
  const std::string& file() const { return errorFile; }
  const std::string& node() const { return errorNode; }
  const std::string& hint() const { return errorHint; }
  /// JSON of kvopt_error_report; empty for most errors.
  const std::string& report() const { return errorReport; }

private:
  kvopt_error_kind errorKind;
  std::string errorCode, text, errorFile, errorNode, errorHint, errorReport;
};

/// Options by name and text: {{"--to", "ort"}}.
using Options = std::vector<std::pair<std::string, std::string>>;

/// Receives progress, as kvopt_progress::report does; returns true to cancel.
using Progress = std::function<bool(const char* what, uint64_t done, uint64_t total)>;

/// Provides external data, as kvopt_read does.
using ReadExternal =
    std::function<int64_t(const char* location, uint64_t offset, void* buffer, size_t size)>;

namespace detail {

inline void check(kvopt_error* error) {
  if (!error)
    return;
  const std::unique_ptr<kvopt_error, void (*)(kvopt_error*)> owner(error, kvopt_error_free);
  throw Error(error);
}

inline std::vector<kvopt_option> view(const Options& options) {
  std::vector<kvopt_option> texts;
  for (const auto& option : options)
    texts.push_back({option.first.c_str(), option.second.c_str()});
  return texts;
}

/// The text of bytes that are freed.
inline std::string take(kvopt_bytes* bytes) {
  const std::unique_ptr<kvopt_bytes, void (*)(kvopt_bytes*)> owner(bytes, kvopt_bytes_free);
  return std::string(kvopt_bytes_data(bytes), kvopt_bytes_size(bytes));
}

/// A callback for the duration of one call. Its exceptions are rethrown after the call.
class ProgressCall {
public:
  explicit ProgressCall(const Progress& callback) : progress(callback) {}
  const kvopt_progress* get() const { return progress ? &table : nullptr; }
  void check(kvopt_error* error) const {
    if (thrown) {
      kvopt_error_free(error);
      std::rethrow_exception(thrown);
    }
    detail::check(error);
  }

private:
  static int report(void* user, const char* what, uint64_t done, uint64_t total) {
    auto* self = static_cast<ProgressCall*>(user);
    try {
      return self->progress(what, done, total) ? 1 : 0;
    } catch (...) {
      self->thrown = std::current_exception();
      return 1;
    }
  }

  const Progress& progress;
  std::exception_ptr thrown;
  kvopt_progress table{sizeof(kvopt_progress), report, this};
};

/// A callback for external data. Its exceptions are rethrown after the call.
class ReadCall {
public:
  explicit ReadCall(const ReadExternal& callback) : function(callback) {}
  void check(kvopt_error* error) const {
    if (thrown) {
      kvopt_error_free(error);
      std::rethrow_exception(thrown);
    }
    detail::check(error);
  }
  static int64_t read(void* user, const char* location, uint64_t offset, void* buffer,
                      size_t size) {
    auto* self = static_cast<ReadCall*>(user);
    try {
      return self->function(location, offset, buffer, size);
    } catch (...) {
      self->thrown = std::current_exception();
      return -1;
    }
  }

private:
  const ReadExternal& function;
  std::exception_ptr thrown;
};

} // namespace detail

/// Version of the library, as "0.1.0".
inline std::string version() { return kvopt_version(); }

/// An ONNX model, as a file or as bytes. It never changes.
class Model {
public:
  static Model open(const std::string& path, const Options& options = {}) {
    const auto texts = detail::view(options);
    kvopt_model* model = nullptr;
    detail::check(kvopt_model_open(path.c_str(), texts.data(), texts.size(), &model));
    return Model(model);
  }
  /// `folder` holds external data; empty: there must not be any.
  static Model fromBytes(const void* data, size_t size, const std::string& folder = {},
                         const Options& options = {}) {
    const auto texts = detail::view(options);
    kvopt_model* model = nullptr;
    detail::check(kvopt_model_from_bytes(data, size, folder.empty() ? nullptr : folder.c_str(),
                                         texts.data(), texts.size(), &model));
    return Model(model);
  }
  /// `read` provides external data; see kvopt_model_from_reader. Its exceptions are rethrown.
  static Model fromReader(const void* data, size_t size, const ReadExternal& read,
                          const Options& options = {}) {
    const auto texts = detail::view(options);
    detail::ReadCall call(read);
    kvopt_model* model = nullptr;
    call.check(kvopt_model_from_reader(data, size, detail::ReadCall::read, &call, texts.data(),
                                       texts.size(), &model));
    return Model(model);
  }
  /// Takes ownership.
  explicit Model(kvopt_model* model) : handle(model, kvopt_model_free) {}

  const kvopt_model* get() const { return handle.get(); }

private:
  std::unique_ptr<kvopt_model, void (*)(kvopt_model*)> handle;
};

/// Facts about every attention layer and cache as JSON, kvopt/inspect/1.
inline std::string inspect(const Model& model, const Options& options = {},
                           const Progress& progress = {}) {
  const auto texts = detail::view(options);
  const detail::ProgressCall call(progress);
  kvopt_bytes* json = nullptr;
  call.check(kvopt_inspect(model.get(), texts.data(), texts.size(), call.get(), &json));
  return detail::take(json);
}

/// How each attention layer was matched, or why it was missed, as JSON, kvopt/explain/1.
inline std::string explain(const Model& model, const Options& options = {},
                           const Progress& progress = {}) {
  const auto texts = detail::view(options);
  const detail::ProgressCall call(progress);
  kvopt_bytes* json = nullptr;
  call.check(kvopt_explain(model.get(), texts.data(), texts.size(), call.get(), &json));
  return detail::take(json);
}

/// A model in another form, with its manifest.
class Result {
public:
  /// Takes ownership.
  explicit Result(kvopt_result* result) : handle(result, kvopt_result_free) {}

  bool isUnchanged() const { return kvopt_result_is_unchanged(handle.get()) != 0; }
  /// JSON, kvopt/rewrite/1.
  std::string report() const { return kvopt_result_report(handle.get()); }
  /// JSON, how to drive the model's caches.
  std::string manifest() const { return kvopt_result_manifest(handle.get()); }
  /// Bytes of a ModelProto, with external data named but not loaded.
  std::string serialize() const {
    kvopt_bytes* bytes = nullptr;
    detail::check(kvopt_result_serialize(handle.get(), &bytes));
    return detail::take(bytes);
  }
  Model model() const {
    kvopt_model* made = nullptr;
    detail::check(kvopt_result_model(handle.get(), &made));
    return Model(made);
  }
  /// Writes the model, and the manifest next to it.
  void save(const std::string& path, const Options& options = {}, const Progress& progress = {}) {
    const auto texts = detail::view(options);
    const detail::ProgressCall call(progress);
    call.check(
        kvopt_result_save(handle.get(), path.c_str(), texts.data(), texts.size(), call.get()));
  }

private:
  std::unique_ptr<kvopt_result, void (*)(kvopt_result*)> handle;
};

namespace detail {

using Rewriting = kvopt_error* (*)(const kvopt_model*, const kvopt_option*, size_t,
                                   const kvopt_progress*, kvopt_result**);

inline Result rewritten(Rewriting function, const Model& model, const Options& options,
                        const Progress& progress) {
  const auto texts = view(options);
  const ProgressCall call(progress);
  kvopt_result* result = nullptr;
  call.check(function(model.get(), texts.data(), texts.size(), call.get(), &result));
  return Result(result);
}

} // namespace detail

/// Rewrites a model; see kvopt_rewrite.
inline Result rewrite(const Model& model, const Options& options = {},
                      const Progress& progress = {}) {
  return detail::rewritten(kvopt_rewrite, model, options, progress);
}
/// Gives caches to a decoder that was exported without them.
inline Result addCache(const Model& model, const Options& options = {},
                       const Progress& progress = {}) {
  return detail::rewritten(kvopt_add_cache, model, options, progress);
}
/// Gives symbols to the extents that an export fixed.
inline Result makeDynamic(const Model& model, const Options& options = {},
                          const Progress& progress = {}) {
  return detail::rewritten(kvopt_make_dynamic, model, options, progress);
}

/// Result of a comparison; `report` is JSON: kvopt/verify/1, or kvopt/check/1.
struct Verification {
  bool isEqual = false;
  std::string report;
};

/// Runs two models step by step and compares them.
inline Verification verify(const Model& first, const Model& second, const Options& options = {},
                           const Progress& progress = {}) {
  const auto texts = detail::view(options);
  const detail::ProgressCall call(progress);
  int equal = 0;
  kvopt_bytes* json = nullptr;
  call.check(kvopt_verify(first.get(), second.get(), texts.data(), texts.size(), call.get(), &equal,
                          &json));
  return {equal != 0, detail::take(json)};
}

/// The same with recorded steps, or data sets in ONNX's format, in place of a second model.
inline Verification verifyRecording(const Model& model, const std::string& path,
                                    Options options = {}, const Progress& progress = {}) {
  options.push_back({"reference", path});
  const auto texts = detail::view(options);
  const detail::ProgressCall call(progress);
  int equal = 0;
  kvopt_bytes* json = nullptr;
  call.check(
      kvopt_verify(model.get(), nullptr, texts.data(), texts.size(), call.get(), &equal, &json));
  return {equal != 0, detail::take(json)};
}

/// Checks that two models compute the same, without running them. `isEqual` means proved. With the
/// option "counterexample", a folder receives the step in which they differ; verifyRecording(after,
/// folder) repeats it in floats.
inline Verification check(const Model& before, const Model& after, const Options& options = {},
                          const Progress& progress = {}) {
  const auto texts = detail::view(options);
  const detail::ProgressCall call(progress);
  int equal = 0;
  kvopt_bytes* json = nullptr;
  call.check(kvopt_check(before.get(), after.get(), texts.data(), texts.size(), call.get(), &equal,
                         &json));
  return {equal != 0, detail::take(json)};
}

/// Differences between two models as JSON, kvopt/diff/1.
inline std::string diff(const Model& first, const Model& second, const Options& options = {},
                        const Progress& progress = {}) {
  const auto texts = detail::view(options);
  const detail::ProgressCall call(progress);
  kvopt_bytes* json = nullptr;
  call.check(kvopt_diff(first.get(), second.get(), texts.data(), texts.size(), call.get(), &json));
  return detail::take(json);
}

/// A borrowed output or input.
struct Tensor : kvopt_tensor {
  template <class T> const T* as() const { return static_cast<const T*>(data); }
  int64_t elements() const {
    int64_t count = 1;
    for (int32_t axis = 0; axis < rank; ++axis)
      count *= shape[axis];
    return count;
  }
};

/// A batch of sequences with their caches; see kvopt_session.
class Session {
public:
  explicit Session(const Model& model, int64_t batch = 1, const Options& options = {})
      : handle(nullptr, kvopt_session_free) {
    const auto texts = detail::view(options);
    kvopt_session* session = nullptr;
    detail::check(kvopt_session_create(model.get(), batch, texts.data(), texts.size(), &session));
    handle.reset(session);
  }

  /// Appends the tokens, [batch, tokens.size() / batch].
  void feed(const std::vector<int64_t>& tokens) {
    const auto rows = static_cast<size_t>(batch());
    if (tokens.size() % rows != 0)
      throw std::invalid_argument("the number of tokens is not a multiple of the batch size");
    detail::check(
        kvopt_session_feed(get(), tokens.data(), static_cast<int64_t>(tokens.size() / rows)));
  }
  /// Appends `newTokens` tokens with inputs that the caller makes.
  void step(const std::vector<std::pair<std::string, kvopt_tensor>>& inputs, int64_t newTokens) {
    withTensors(kvopt_session_step, inputs, newTokens);
  }
  /// The same with DLPack tensors, which stay the caller's.
  void step(const std::vector<std::pair<std::string, DLManagedTensor*>>& inputs,
            int64_t newTokens) {
    withTensors(kvopt_session_step_dlpack, inputs, newTokens);
  }
  /// Replaces the contents of the caches by `tokens` tokens; see kvopt_session_seed.
  void seed(const std::vector<std::pair<std::string, kvopt_tensor>>& caches, int64_t tokens) {
    withTensors(kvopt_session_seed, caches, tokens);
  }
  /// The same with DLPack tensors, which stay the caller's.
  void seed(const std::vector<std::pair<std::string, DLManagedTensor*>>& caches, int64_t tokens) {
    withTensors(kvopt_session_seed_dlpack, caches, tokens);
  }
  /// The next token of a sequence: the most likely one, or one drawn as the options say.
  int64_t choose(int64_t row = 0, const Options& options = {}) const {
    const auto texts = detail::view(options);
    int64_t token = 0;
    detail::check(kvopt_session_choose(get(), row, texts.data(), texts.size(), &token));
    return token;
  }

  size_t outputCount() const { return kvopt_session_output_count(get()); }
  std::string outputName(size_t index) const {
    const char* name = kvopt_session_output_name(get(), index);
    return name ? name : "";
  }
  /// Lives until the next call that changes the session.
  Tensor output(size_t index = 0) const {
    Tensor tensor{};
    detail::check(kvopt_session_output(get(), index, &tensor));
    return tensor;
  }

  int64_t length() const { return kvopt_session_length(get()); }
  int64_t capacity() const { return kvopt_session_capacity(get()); }
  int64_t batch() const { return kvopt_session_batch(get()); }

  void crop(int64_t tokens) { detail::check(kvopt_session_crop(get(), tokens)); }
  void shift(int64_t kept, int64_t dropped) {
    detail::check(kvopt_session_shift(get(), kept, dropped));
  }
  void reset() { detail::check(kvopt_session_reset(get())); }
  Session fork() const {
    kvopt_session* session = nullptr;
    detail::check(kvopt_session_fork(get(), &session));
    return Session(session);
  }
  void reorder(const std::vector<int64_t>& rows) {
    detail::check(kvopt_session_reorder(get(), rows.data(), rows.size()));
  }
  void save(const std::string& path) const {
    detail::check(kvopt_session_save(get(), path.c_str()));
  }
  void load(const std::string& path) { detail::check(kvopt_session_load(get(), path.c_str())); }
  /// JSON of kvopt_session_statistics.
  std::string statistics() const {
    kvopt_bytes* json = nullptr;
    detail::check(kvopt_session_statistics(get(), &json));
    return detail::take(json);
  }

  kvopt_session* get() const { return handle.get(); }

private:
  explicit Session(kvopt_session* session) : handle(session, kvopt_session_free) {}

  template <class Function, class Tensor>
  void withTensors(Function function, const std::vector<std::pair<std::string, Tensor>>& named,
                   int64_t tokens) {
    std::vector<const char*> names;
    std::vector<Tensor> tensors;
    for (const auto& tensor : named) {
      names.push_back(tensor.first.c_str());
      tensors.push_back(tensor.second);
    }
    detail::check(function(get(), names.data(), tensors.data(), tensors.size(), tokens));
  }

  std::unique_ptr<kvopt_session, void (*)(kvopt_session*)> handle;
};

} // namespace kvopt
