// A decoder whose most likely token is the number after the last one, modulo 8. Its only cache
// collects the tokens.
#pragma once

#include "ir/model.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "runtime/session/session.h"

namespace kvopt::test {

class CountingModel {
public:
  explicit CountingModel(const std::string& scoreOffset = "1",
                         const std::string& pastName = "past") {
    registerAll(ops);
    registerAll(kernels);
    const std::string text = R"(
<ir_version: 8, opset_import: ["" : 17]>
g (int64[B, S] input_ids, int64[B, T] attention_mask, float[B, P, 1] )" +
                             pastName +
                             R"()
  => (float[B, S, 8] logits, float[B, N, 1] present)
<int64 depth = {8}, float[2] values = {0, 1}, int64 one = {)" +
                             scoreOffset + R"(}, int64 eight = {8}, int64[1] last = {2}>
{
  next = Add(input_ids, one)
  wrapped = Mod(next, eight)
  logits = OneHot(wrapped, depth, values)
  tokens = Cast <to = 1> (input_ids)
  rows = Unsqueeze(tokens, last)
  present = Concat <axis = 1> ()" +
                             pastName +
                             R"(, rows)
})";
    model = llvm::cantFail(ir::readText(text, ops));
    llvm::cantFail(ir::inferShapes(model->graph()));
    manifest.contract = ir::CacheUpdate::Grows;
    ir::ManifestCache cache;
    cache.past = pastName;
    cache.present = "present";
    cache.shape = {std::string("B"), std::string("P"), int64_t{1}};
    cache.sequenceAxis = 1;
    manifest.caches = {cache};
  }
  CountingModel(const CountingModel&) = delete;

  std::unique_ptr<runtime::Session> session(int64_t batch = 1) const {
    runtime::SessionOptions options;
    options.batch = batch;
    return llvm::cantFail(runtime::Session::create(*model, kernels, manifest, options));
  }

  ir::OpRegistry ops;
  runtime::KernelRegistry kernels;
  std::unique_ptr<ir::Model> model;
  ir::Manifest manifest;
};

} // namespace kvopt::test
