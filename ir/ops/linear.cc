// Matrix products and convolution: MatMul, Gemm, Einsum, Conv.
#include "ir/shapes/shape_rules.h"
#include "support/string_ends.h"

#include "llvm/ADT/StringExtras.h"

#include <map>

namespace kvopt::ir {
namespace {

llvm::Error inferMatMul(ShapeContext& context) {
  auto shape = matMulShape(context, context.type(0), context.type(1));
  if (!shape)
    return shape.takeError();
  context.setResult(0, typeOf(context.element(0), std::move(*shape)));
  return llvm::Error::success();
}

llvm::Error inferGemm(ShapeContext& context) {
  for (unsigned operand : {0u, 1u})
    if (llvm::Error error = requireRank(context, operand, 2))
      return error;
  unsigned rowsOfA = context.node().intAttr("transA", 0) != 0 ? 1 : 0;
  unsigned rowsOfB = context.node().intAttr("transB", 0) != 0 ? 1 : 0;
  const TensorType& a = context.type(0);
  const TensorType& b = context.type(1);
  if (llvm::Error error =
          requireEqual(context, a.dim(1 - rowsOfA), b.dim(rowsOfB), "inner extents"))
    return error;
  context.setResult(0, TensorType(context.element(0), Shape{a.dim(rowsOfA), b.dim(1 - rowsOfB)}));
  return llvm::Error::success();
}

// Letters only: an equation with an ellipsis leaves the shape unknown.
llvm::Error inferEinsum(ShapeContext& context) {
  context.setResult(0, TensorType(context.element(0)));
  std::string equation;
  for (char c : context.node().stringAttr("equation", ""))
    if (c != ' ')
      equation += c;
  llvm::StringRef text = equation;
  if (text.empty() || text.contains('.'))
    return llvm::Error::success();
  size_t arrow = text.find("->");
  llvm::SmallVector<llvm::StringRef, 4> terms;
  text.take_front(arrow).split(terms, ',');
  if (terms.size() != context.node().operands().size())
    return context.error(formatted("the equation has {} terms for {} operands", terms.size(),
                                   context.node().operands().size()));
  struct Index {
    Dim extent = Dim::fixed(1);
    unsigned occurrences = 0;
  };
  for (char c : text)
    if (!llvm::isAlpha(c) && c != ',' && c != '-' && c != '>')
      return context.error(formatted("the equation has a '{}'", c));
  std::map<char, Index> indices;
  for (unsigned i = 0; i < terms.size(); ++i) {
    const TensorType& type = context.type(i);
    if (llvm::Error error = requireRank(context, i, static_cast<unsigned>(terms[i].size())))
      return error;
    for (size_t axis = 0; axis < terms[i].size(); ++axis) {
      Index& index = indices[terms[i][axis]];
      ++index.occurrences;
      std::optional<Shape> merged =
          broadcastShapes({index.extent}, {type.dim(static_cast<int64_t>(axis))});
      if (!merged)
        return context.error(formatted("extents of index '{}' differ: {} and {}", terms[i][axis],
                                       index.extent.str(), type.dim(int64_t(axis)).str()));
      index.extent = merged->front();
    }
  }
  Shape shape;
  if (arrow == llvm::StringRef::npos) {
    for (const auto& entry : indices)
      if (entry.second.occurrences == 1)
        shape.push_back(entry.second.extent);
  } else {
    llvm::StringRef result = text.drop_front(arrow + 2);
    for (char name : result) {
      auto found = indices.find(name);
      if (found == indices.end())
        return context.error("the result has an index that no operand has");
      if (result.count(name) != 1)
        return context.error(formatted("the result has index '{}' twice", name));
      shape.push_back(found->second.extent);
    }
  }
  context.setResult(0, TensorType(context.element(0), std::move(shape)));
  return llvm::Error::success();
}

struct ConvAxis {
  int64_t stride = 1, dilation = 1, padBegin = 0, padEnd = 0;
};

Dim convExtent(const Dim& input, const Dim& kernel, const ConvAxis& axis) {
  std::optional<int64_t> width = kernel.value();
  constexpr int64_t limit = int64_t{1} << 31;
  if (!width || *width < 1 || *width > limit || axis.stride < 1 || axis.dilation < 1 ||
      axis.dilation > limit || axis.padBegin < 0 || axis.padEnd < 0 || axis.padBegin > limit ||
      axis.padEnd > limit)
    return Dim::unknown();
  int64_t reach = axis.dilation * (*width - 1);
  Dim span = input + Dim::fixed(axis.padBegin + axis.padEnd - reach - 1);
  Dim places = Dim::unknown();
  if (axis.stride == 1)
    places = span + Dim::fixed(1);
  else if (span.value() && *span.value() >= 0)
    places = Dim::fixed(*span.value() / axis.stride + 1);
  return places.isKnownNonNegative() ? places : Dim::unknown();
}

llvm::Error inferConv(ShapeContext& context) {
  const TensorType& x = context.type(0);
  const TensorType& w = context.type(1);
  if (!x.hasRank()) {
    context.setResult(0, TensorType(context.element(0)));
    return llvm::Error::success();
  }
  if (x.rank() < 3)
    return context.error(formatted("{} has no spatial axes", x.str()));
  if (llvm::Error error = requireRank(context, 1, x.rank()))
    return error;
  size_t spatial = x.rank() - 2;
  auto strides = context.node().intsAttr("strides");
  auto dilations = context.node().intsAttr("dilations");
  auto pads = context.node().intsAttr("pads");
  if ((strides && strides->size() != spatial) || (dilations && dilations->size() != spatial) ||
      (pads && pads->size() != 2 * spatial))
    return context.error("strides, dilations or pads do not fit the spatial axes");
  llvm::StringRef automatic = context.node().stringAttr("auto_pad", "NOTSET");
  Shape shape{x.dim(0), w.dim(0)};
  for (size_t i = 0; i < spatial; ++i) {
    ConvAxis axis;
    axis.stride = strides ? (*strides)[i] : 1;
    axis.dilation = dilations ? (*dilations)[i] : 1;
    Dim input = x.shape()[i + 2];
    if (startsWith(automatic, "SAME")) {
      shape.push_back(axis.stride >= 1 ? ceilDivide(input, axis.stride) : Dim::unknown());
      continue;
    }
    if (pads && automatic != "VALID") {
      axis.padBegin = (*pads)[i];
      axis.padEnd = (*pads)[spatial + i];
    }
    shape.push_back(convExtent(input, w.dim(static_cast<int64_t>(i + 2)), axis));
  }
  context.setResult(0, TensorType(context.element(0), std::move(shape)));
  return llvm::Error::success();
}

} // namespace

void register_linear(OpRegistry& registry) {
  define(registry, "MatMul", 1).in("A").in("B").out("Y").shape(inferMatMul);
  for (int64_t since : {7, 11}) {
    define(registry, "Gemm", since)
        .in("A")
        .in("B")
        .in(since < 11 ? "C" : "C?")
        .out("Y")
        .attr("alpha", 1.0f)
        .attr("beta", 1.0f)
        .attr("transA", int64_t{0})
        .attr("transB", int64_t{0})
        .shape(inferGemm);
  }
  define(registry, "com.microsoft::FusedGemm", 1)
      .in("A")
      .in("B")
      .in("C?")
      .out("Y")
      .attr("alpha", 1.0f)
      .attr("beta", 1.0f)
      .attr("transA", int64_t{0})
      .attr("transB", int64_t{0})
      .attr("activation", AttributeKind::String)
      .attr("activation_alpha", AttributeKind::Float)
      .attr("activation_beta", AttributeKind::Float)
      .attr("activation_gamma", AttributeKind::Float)
      .shape(inferGemm);
  define(registry, "Einsum", 12)
      .in("Inputs+")
      .out("Output")
      .requiredAttr("equation", AttributeKind::String)
      .shape(inferEinsum);
  define(registry, "Conv", 1)
      .in("X")
      .in("W")
      .in("B?")
      .out("Y")
      .attr("auto_pad", "NOTSET")
      .attr("dilations", AttributeKind::Ints)
      .attr("group", int64_t{1})
      .attr("kernel_shape", AttributeKind::Ints)
      .attr("pads", AttributeKind::Ints)
      .attr("strides", AttributeKind::Ints)
      .shape(inferConv);
}

} // namespace kvopt::ir
