// Operators and kernels for tests of the executor: add, an append in place, and a view.
#pragma once

#include "ir/model.h"
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/exec/kernel.h"
#include "support/diagnostic.h"

#include <cstring>

namespace kvopt::test {

inline llvm::Error sameShape(ir::ShapeContext& context) {
  context.setResult(0, context.type(0));
  return llvm::Error::success();
}

/// sum(x, y), all of one shape.
inline llvm::Error runAdd(runtime::KernelContext& context) {
  const runtime::TensorView& a = context.in(0);
  const runtime::TensorView& b = context.in(1);
  if (a.shape != b.shape)
    return context.error("shapes differ");
  llvm::Expected<runtime::TensorView> sum = context.output(0, a.element, a.shape);
  if (!sum)
    return sum.takeError();
  llvm::Expected<std::span<std::byte>> scratch = context.scratch(100);
  if (!scratch)
    return scratch.takeError();
  float* target = sum->as<float>();
  context.parallelFor(a.elementCount(),
                      [&](int64_t i) { target[i] = a.as<float>()[i] + b.as<float>()[i]; });
  return llvm::Error::success();
}

/// (cache[B,C], rows[B,S], length[1]) → cache with rows at [length, length + S), in place, and the
/// sum of the first length + S of each row.
inline llvm::Error runAppend(runtime::KernelContext& context) {
  const runtime::TensorView rows = context.in(1);
  int64_t past = *context.in(2).as<int64_t>();
  int64_t batch = rows.shape[0];
  int64_t added = rows.shape[1];
  if (past < 0 || past + added > context.in(0).shape[1])
    return context.error("the cache is full");
  llvm::Expected<runtime::TensorView> cache = context.outputInPlace(0, 0);
  if (!cache)
    return cache.takeError();
  llvm::Expected<runtime::TensorView> sums = context.output(1, rows.element, {batch});
  if (!sums)
    return sums.takeError();
  for (int64_t row = 0; row < batch; ++row) {
    float* line = cache->as<float>() + row * cache->strides[0];
    std::memcpy(line + past, rows.as<float>() + row * added,
                static_cast<size_t>(added) * sizeof(float));
    float sum = 0;
    for (int64_t i = 0; i < past + added; ++i)
      sum += line[i];
    sums->as<float>()[row] = sum;
  }
  context.noteCacheWrite(batch * added * 4);
  return llvm::Error::success();
}

inline llvm::Error inferAppend(ir::ShapeContext& context) {
  context.setResult(0, context.type(0));
  context.setResult(1, ir::TensorType(context.element(1), ir::Shape{context.type(1).dim(0)}));
  return llvm::Error::success();
}

/// Flattens, as a view.
inline llvm::Error runFlat(runtime::KernelContext& context) {
  return context.outputView(0, 0, {context.in(0).elementCount()});
}

/// (past[B,P], rows[B,S]) → concatenation.
inline llvm::Error runJoin(runtime::KernelContext& context) {
  const runtime::TensorView a = context.in(0);
  const runtime::TensorView b = context.in(1);
  llvm::Expected<runtime::TensorView> joined =
      context.output(0, a.element, {a.shape[0], a.shape[1] + b.shape[1]});
  if (!joined)
    return joined.takeError();
  float* target = joined->as<float>();
  for (int64_t row = 0; row < a.shape[0]; ++row) {
    target = std::copy_n(a.as<float>() + row * a.shape[1], a.shape[1], target);
    target = std::copy_n(b.as<float>() + row * b.shape[1], b.shape[1], target);
  }
  return llvm::Error::success();
}

inline void addTestOps(ir::OpRegistry& ops) {
  define(ops, "t::Add", 1).in("x").in("y").out("sum").shape(sameShape);
  define(ops, "t::Append", 1)
      .in("cache")
      .in("rows")
      .in("length")
      .out("present")
      .out("sum")
      .shape(inferAppend)
      .inPlace(0, 0);
  define(ops, "t::Flat", 1).in("x").out("y").view();
  define(ops, "t::Join", 1).in("past").in("rows").out("present");
  define(ops, "t::Odd", 1).in("x").out("y");
}

inline void addTestKernels(runtime::KernelRegistry& kernels) {
  kernels.add("t::Add", 1, runAdd);
  kernels.add("t::Append", 1, runAppend);
  kernels.add("t::Flat", 1, runFlat);
  kernels.add("t::Join", 1, runJoin);
}

inline ir::TensorType floats(std::initializer_list<const char*> extents) {
  ir::Shape shape;
  for (const char* extent : extents)
    shape.push_back(*ir::Dim::parse(extent));
  return {ir::ElementType::Float, shape};
}

/// cache[B,C], rows[B,S], length[1] → present, sum.
inline std::unique_ptr<ir::Model> appendModel(const ir::OpRegistry& ops) {
  auto model = std::make_unique<ir::Model>(ops);
  model->opsets = {{"", 17}, {"t", 1}};
  ir::Graph& graph = model->graph();
  ir::Value& cache = graph.addInput("past", floats({"B", "C"}));
  ir::Value& rows = graph.addInput("rows", floats({"B", "S"}));
  ir::Value& length = graph.addInput("length", ir::TensorType::fixed(ir::ElementType::Int64, {1}));
  ir::Node& node = graph.create("t::Append", {&cache, &rows, &length}, {"present", "sum"});
  graph.addOutput(node.result(1));
  graph.addOutput(node.result(0));
  llvm::cantFail(ir::inferShapes(graph));
  return model;
}

} // namespace kvopt::test
