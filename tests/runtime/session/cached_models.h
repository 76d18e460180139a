// One small decoder for every way in which a session keeps a cache. What each computes depends on
// all tokens before, and batch rows do not depend on each other.
#pragma once

#include "ir/model.h"
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "runtime/session/session.h"

#include <gtest/gtest.h>

namespace kvopt::test {

enum class CacheForm { Shared, PerRow, Transposed, SequenceFirst, Growing, Static, Ring, State };

inline const char* name(CacheForm form) {
  constexpr const char* names[] = {"Shared",  "PerRow", "Transposed", "SequenceFirst",
                                   "Growing", "Static", "Ring",       "State"};
  return names[static_cast<size_t>(form)];
}
inline void PrintTo(CacheForm form, std::ostream* out) { *out << name(form); }

inline constexpr int64_t staticRows = 24;
inline constexpr int64_t ringRows = 3;

/// [batch][tokens]
using Tokens = std::vector<std::vector<int64_t>>;

class CachedModel {
public:
  explicit CachedModel(CacheForm cacheForm, const std::string& scale = "0.25") : form(cacheForm) {
    registerAll(ops);
    registerAll(kernels);
    model = llvm::cantFail(ir::readText(text(scale), ops));
    llvm::cantFail(ir::inferShapes(model->graph()));
    describe();
  }
  CachedModel(const CachedModel&) = delete;

  bool isShared() const { return form <= CacheForm::SequenceFirst; }

  runtime::SessionOptions options(int64_t batch = 2) const {
    runtime::SessionOptions options;
    options.batch = batch;
    options.threads = 1;
    options.poison = true;
    options.capacity = isShared() ? staticRows : 0;
    return options;
  }
  std::unique_ptr<runtime::Session> session(const runtime::SessionOptions& options) const {
    return llvm::cantFail(runtime::Session::create(*model, kernels, manifest, options));
  }
  std::unique_ptr<runtime::Session> session(int64_t batch = 2) const {
    return session(options(batch));
  }

  /// The scores of the new tokens, [B,S,4].
  llvm::Expected<std::vector<float>> step(runtime::Session& session, const Tokens& tokens) const {
    auto rows = static_cast<int64_t>(tokens.front().size());
    std::vector<int64_t> ids;
    for (const std::vector<int64_t>& row : tokens)
      ids.insert(ids.end(), row.begin(), row.end());
    std::vector<int64_t> places(tokens.size(), session.length());
    std::vector<float> seen(static_cast<size_t>(staticRows), 0.0f);
    std::fill_n(seen.begin(), std::min(staticRows, session.length() + rows), 1.0f);
    auto bytes = [](auto& values) { return reinterpret_cast<std::byte*>(values.data()); };
    auto batch = static_cast<int64_t>(tokens.size());
    llvm::SmallVector<runtime::NamedView, 3> inputs = {
        {"input_ids",
         runtime::TensorView::contiguous(ir::ElementType::Int64, {batch, rows}, bytes(ids))}};
    if (form == CacheForm::Static) {
      inputs.push_back({"place", runtime::TensorView::contiguous(ir::ElementType::Int64, {batch},
                                                                 bytes(places))});
      inputs.push_back({"seen", runtime::TensorView::contiguous(
                                    ir::ElementType::Float, {1, 1, staticRows, 1}, bytes(seen))});
    }
    llvm::Expected<runtime::StepResult> result = session.step(inputs, rows);
    if (!result)
      return result.takeError();
    const runtime::TensorView& scores = result->find("scores")->view;
    return std::vector<float>(scores.as<float>(), scores.as<float>() + scores.elementCount());
  }
  std::vector<float> feed(runtime::Session& session, const Tokens& tokens) const {
    return llvm::cantFail(step(session, tokens));
  }

  /// Tokens [from, to) of batch rows that all differ; `rows` chooses among them.
  static Tokens tokens(int64_t from, int64_t to, const std::vector<int64_t>& rows = {0, 1},
                       int64_t variant = 0) {
    Tokens result;
    for (int64_t row : rows) {
      result.emplace_back();
      for (int64_t i = from; i < to; ++i)
        result.back().push_back((i * i + 3 * row + i * row + variant * (i + 1)) % 8);
    }
    return result;
  }
  /// Five tokens, two, and then one by one up to `to`.
  std::vector<float> feedUpTo(runtime::Session& session, int64_t to,
                              const std::vector<int64_t>& rows = {0, 1}) const {
    std::vector<float> last;
    while (session.length() < to) {
      int64_t from = session.length();
      int64_t count = from == 0 ? 5 : from == 5 ? 2 : 1;
      last = feed(session, tokens(from, std::min(to, from + count), rows));
    }
    return last;
  }

  CacheForm form;
  ir::OpRegistry ops;
  runtime::KernelRegistry kernels;
  std::unique_ptr<ir::Model> model;
  ir::Manifest manifest;

private:
  /// The cache as the graph declares it; B rows, two heads, width 4.
  std::string shape(const std::string& rows) const {
    switch (form) {
    case CacheForm::Transposed:
      return "float[B, 2, 4, " + rows + "]";
    case CacheForm::SequenceFirst:
      return "float[" + rows + ", B, 2, 4]";
    case CacheForm::State:
      return "float[B, 2, 1, 4]";
    default:
      return "float[B, 2, " + rows + ", 4]";
    }
  }

  std::string text(const std::string& scale) const {
    std::string head = "<ir_version: 10, opset_import: [\"\" : 24, \"ai.kvopt\" : 1]>\n"
                       "g (int64[B, S] input_ids";
    std::string constants = "<float[8, 8] table = {";
    for (int i = 0; i < 64; ++i)
      constants += (i ? ", " : "") + std::to_string((i * 37 % 64) * 0.03125 - 1.0);
    constants += "}, int64[4] split = {0, 0, 2, 4}, int64[3] joined = {0, 0, 8}, "
                 "float half = {0.5}, int64[1] rows = {2}, int64[1] from = {-3}, "
                 "int64[1] to = {9223372036854775807}>\n";
    std::string body = R"({
  embedded = Gather(table, input_ids)
  heads = Reshape(embedded, split)
  x = Transpose <perm = [0, 2, 1, 3]> (heads)
)";
    std::string tail = R"(  back = Transpose <perm = [0, 2, 1, 3]> (o)
  scores = Reshape(back, joined)
})";
    std::string attention = "<scale = " + scale + ", causal = 1";
    auto graph = [&](const std::string& more, const std::string& rows, const std::string& inner) {
      std::string caches;
      std::string presents;
      for (const char* role : {"key", "value"}) {
        caches += ", " + shapeOf(role, rows) + " past_" + role;
        presents += ", " + shapeOf(role, rows == "P" ? "N" : rows) + " present_" + role;
      }
      return head + more + caches + ") => (float[B, S, 8] scores" + presents + ")\n" + constants +
             body + inner + tail;
    };
    switch (form) {
    case CacheForm::Shared:
    case CacheForm::PerRow:
    case CacheForm::Transposed:
    case CacheForm::SequenceFirst: {
      std::string keyAxis = form == CacheForm::Transposed      ? "3"
                            : form == CacheForm::SequenceFirst ? "0"
                                                               : "2";
      std::string valueAxis = form == CacheForm::SequenceFirst ? "0" : "2";
      return graph(form == CacheForm::PerRow ? ", int64[B] past_length" : ", int64[1] past_length",
                   "C",
                   "  o, present_key, present_value = ai.kvopt.InPlaceKvSdpa " + attention +
                       ", key_axis = " + keyAxis + ", value_axis = " + valueAxis +
                       "> (x, x, x, past_key, past_value, past_length)\n");
    }
    case CacheForm::Growing:
      return graph("", "P",
                   "  present_key = Concat <axis = 2> (past_key, x)\n"
                   "  present_value = Concat <axis = 2> (past_value, x)\n"
                   "  o = ai.kvopt.Sdpa " +
                       attention + "> (x, present_key, present_value)\n");
    case CacheForm::Static:
      return graph(", int64[B] place, float[1, 1, 24, 1] seen", "24",
                   "  present_key = TensorScatter(past_key, x, place)\n"
                   "  present_value = TensorScatter(past_value, x, place)\n"
                   "  read = Mul(present_key, seen)\n"
                   "  sum = ReduceSum(read, rows)\n"
                   "  o = Sub(x, sum)\n");
    case CacheForm::Ring:
      return graph("", "P",
                   "  all_keys = Concat <axis = 2> (past_key, x)\n"
                   "  present_key = Slice(all_keys, from, to, rows)\n"
                   "  all_values = Concat <axis = 2> (past_value, x)\n"
                   "  present_value = Slice(all_values, from, to, rows)\n"
                   "  sum = ReduceSum(all_keys, rows)\n"
                   "  o = Sub(x, sum)\n");
    case CacheForm::State:
      return graph("", "1",
                   "  sum = ReduceSum(x, rows)\n"
                   "  kept = Mul(past_key, half)\n"
                   "  present_key = Add(kept, sum)\n"
                   "  present_value = Sub(present_key, past_value)\n"
                   "  o = Sub(x, present_value)\n");
    }
    return "";
  }

  std::string shapeOf(const std::string& role, const std::string& rows) const {
    if (form == CacheForm::Transposed && role == "value")
      return "float[B, 2, " + rows + ", 4]";
    return shape(rows);
  }

  void describe() {
    manifest.contract = isShared() ? ir::CacheUpdate::InPlace : ir::CacheUpdate::Grows;
    manifest.capacitySymbol = "C";
    for (const char* role : {"key", "value"}) {
      ir::ManifestCache cache;
      cache.role = role[0] == 'k' ? ir::CacheRole::Key : ir::CacheRole::Value;
      cache.past = std::string("past_") + role;
      cache.present = std::string("present_") + role;
      std::string batch = "B";
      if (form == CacheForm::SequenceFirst) {
        cache.shape = {std::string("C"), batch, int64_t{2}, int64_t{4}};
        cache.sequenceAxis = 0;
      } else if (form == CacheForm::Transposed && cache.role == ir::CacheRole::Key) {
        cache.shape = {batch, int64_t{2}, int64_t{4}, std::string("C")};
        cache.sequenceAxis = 3;
      } else {
        ir::ManifestExtent rows = std::string(isShared() ? "C" : "P");
        if (form == CacheForm::Static)
          rows = staticRows;
        if (form == CacheForm::State)
          rows = int64_t{1};
        cache.shape = {batch, int64_t{2}, rows, int64_t{4}};
      }
      cache.storage = ir::storageOf(form == CacheForm::Static  ? ir::CacheUpdate::Static
                                    : form == CacheForm::Ring  ? ir::CacheUpdate::Ring
                                    : form == CacheForm::State ? ir::CacheUpdate::State
                                    : isShared()               ? ir::CacheUpdate::InPlace
                                                               : ir::CacheUpdate::Grows);
      manifest.caches.push_back(std::move(cache));
    }
    if (form == CacheForm::PerRow)
      manifest.lengths = {{"past_length",
                           ir::ElementType::Int64,
                           {std::string("B")},
                           ir::LengthFeed::PastLengthPerBatch}};
    else if (isShared())
      manifest.lengths = {
          {"past_length", ir::ElementType::Int64, {int64_t{1}}, ir::LengthFeed::PastLength}};
  }
};

inline auto everyCacheForm() {
  return testing::Values(CacheForm::Shared, CacheForm::PerRow, CacheForm::Transposed,
                         CacheForm::SequenceFirst, CacheForm::Growing, CacheForm::Static,
                         CacheForm::Ring, CacheForm::State);
}

} // namespace kvopt::test
