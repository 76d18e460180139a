// Einsum, with a letter for each axis of each operand and of the result:
//
//   y[result letters] = sum over the other letters of the product of the operands' elements
//
// "..." is any number of axes that broadcast. An axis of extent 1 is repeated; a letter that occurs
// twice in an operand selects its diagonal. Without "->", the result has the letters that occur
// once, in order.
//
// Versions: from opset 12.
#include "runtime/kernels/support/blas.h"
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "support/string_ends.h"

#include "llvm/ADT/StringExtras.h"

#include <map>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// A letter, or an axis of the ellipsis: `ellipsisAxis` + its distance from the ellipsis' end.
using Label = int;
constexpr Label ellipsisAxis = 256;

struct Index {
  int64_t extent = 1;
  unsigned occurrences = 0;
  llvm::SmallVector<int64_t, 3> strides; ///< for each operand; 0 if it does not have the label
  llvm::SmallVector<bool, 3> has;
};

struct Equation {
  std::map<Label, Index> indices;
  llvm::SmallVector<Label, 6> result;
  llvm::SmallVector<Label, 6> summed;
};

/// Labels of one term; `ellipsis` is the number of axes of its "...".
llvm::Expected<llvm::SmallVector<Label, 6>> labelsOf(const KernelContext& context,
                                                     llvm::StringRef term, int64_t ellipsis) {
  llvm::SmallVector<Label, 6> labels;
  for (size_t i = 0; i < term.size(); ++i) {
    if (llvm::isAlpha(term[i])) {
      labels.push_back(static_cast<unsigned char>(term[i]));
      continue;
    }
    if (!startsWith(term.substr(i), "...") || term.count('.') != 3)
      return context.error(formatted("'{}' is not a term of an equation", term.str()));
    for (int64_t axis = ellipsis; axis > 0; --axis)
      labels.push_back(ellipsisAxis + static_cast<Label>(axis - 1));
    i += 2;
  }
  return labels;
}

llvm::Error addOperand(const KernelContext& context, Equation& equation, unsigned operand,
                       llvm::StringRef term, int64_t& ellipsis) {
  const TensorView& x = context.in(operand);
  const bool open = term.contains("...");
  const int64_t letters = static_cast<int64_t>(term.size()) - (open ? 3 : 0);
  const int64_t covered = static_cast<int64_t>(x.rank()) - letters;
  if (covered < 0 || (!open && covered != 0))
    return context.error(
        formatted("the term '{}' does not fit a rank of {}", term.str(), x.rank()));
  ellipsis = std::max(ellipsis, covered);
  auto labels = labelsOf(context, term, covered);
  if (!labels)
    return labels.takeError();
  for (unsigned axis = 0; axis < x.rank(); ++axis) {
    Index& index = equation.indices[(*labels)[axis]];
    index.strides.resize(context.inputCount(), 0);
    index.has.resize(context.inputCount(), false);
    ++index.occurrences;
    index.has[operand] = true;
    const int64_t extent = x.shape[axis];
    if (extent != 1 && index.extent != 1 && extent != index.extent)
      return context.error(formatted("extents {} and {} of one index", index.extent, extent));
    if (extent == 1)
      continue;
    index.extent = extent;
    index.strides[operand] += x.strides[axis];
  }
  return llvm::Error::success();
}

llvm::Expected<Equation> parse(const KernelContext& context) {
  std::string compact;
  for (char c : context.node().stringAttr("equation", ""))
    if (c != ' ')
      compact += c;
  llvm::StringRef text = compact;
  const size_t arrow = text.find("->");
  llvm::SmallVector<llvm::StringRef, 3> terms;
  text.take_front(arrow).split(terms, ',');
  if (terms.size() != context.inputCount())
    return context.error(formatted("{} terms for {} operands", terms.size(), context.inputCount()));
  Equation equation;
  int64_t ellipsis = 0;
  for (unsigned operand = 0; operand < terms.size(); ++operand)
    if (llvm::Error error = addOperand(context, equation, operand, terms[operand], ellipsis))
      return error;
  if (arrow != llvm::StringRef::npos) {
    auto labels = labelsOf(context, text.drop_front(arrow + 2), ellipsis);
    if (!labels)
      return labels.takeError();
    equation.result = *labels;
  } else {
    for (int64_t axis = ellipsis; axis > 0; --axis)
      equation.result.push_back(ellipsisAxis + static_cast<Label>(axis - 1));
    for (const auto& [label, index] : equation.indices)
      if (label < ellipsisAxis && index.occurrences == 1)
        equation.result.push_back(label);
  }
  for (size_t i = 0; i < equation.result.size(); ++i) {
    if (equation.indices.count(equation.result[i]) == 0)
      return context.error("the result has an index that no operand has");
    if (llvm::is_contained(llvm::ArrayRef<Label>(equation.result).take_front(i),
                           equation.result[i]))
      return context.error("the result has an index twice");
  }
  for (const auto& entry : equation.indices)
    if (!llvm::is_contained(equation.result, entry.first)) {
      if (entry.first >= ellipsisAxis)
        return context.error("the result lacks the operands' ellipsis");
      equation.summed.push_back(entry.first);
    }
  return equation;
}

/// Extents and strides of one operand for a list of labels.
struct Walk {
  Extents shape, strides;
};

Walk walkOf(const Equation& equation, llvm::ArrayRef<llvm::ArrayRef<Label>> lists,
            unsigned operand) {
  Walk walk;
  for (llvm::ArrayRef<Label> list : lists)
    for (Label label : list) {
      const Index& index = equation.indices.at(label);
      walk.shape.push_back(index.extent);
      walk.strides.push_back(index.strides[operand]);
    }
  return walk;
}

/// The operand's elements in the order of a walk, as f32.
llvm::Expected<const float*> arranged(KernelContext& context, unsigned operand, const Walk& walk) {
  auto floats = floatsOf(context, context.in(operand));
  if (!floats)
    return floats;
  Extents extents = walk.shape;
  extents.push_back(sizeof(float));
  auto bytes = countOf(context, extents);
  if (!bytes)
    return bytes.takeError();
  auto memory = context.scratch(static_cast<size_t>(*bytes));
  if (!memory)
    return memory.takeError();
  auto* copy = reinterpret_cast<float*>(memory->data());
  copyStrided(walk.shape, walk.strides, *floats, copy);
  return copy;
}

/// Two operands of at most 32 bits: a batch of matrix products, [batch,M,K] times [batch,K,N].
llvm::Error matrixProducts(KernelContext& context, const Equation& equation,
                           const TensorView& output) {
  llvm::SmallVector<Label, 6> batch, left, right;
  for (Label label : equation.result) {
    const Index& index = equation.indices.at(label);
    (index.has[0] && index.has[1] ? batch : index.has[0] ? left : right).push_back(label);
  }
  const Walk aWalk = walkOf(equation, {batch, left, equation.summed}, 0);
  const Walk bWalk = walkOf(equation, {batch, equation.summed, right}, 1);
  const Walk cWalk = walkOf(equation, {batch, left, right}, 0);
  auto a = arranged(context, 0, aWalk);
  if (!a)
    return a.takeError();
  auto b = arranged(context, 1, bWalk);
  if (!b)
    return b.takeError();
  auto memory = context.scratch(static_cast<size_t>(output.elementCount()) * sizeof(float));
  if (!memory)
    return memory.takeError();
  auto* c = reinterpret_cast<float*>(memory->data());
  auto extent = [&](llvm::ArrayRef<Label> labels) {
    return product(walkOf(equation, {labels}, 0).shape);
  };
  MatrixProduct whole;
  whole.m = extent(left);
  whole.n = extent(right);
  whole.k = extent(equation.summed);
  whole.lda = std::max<int64_t>(whole.k, 1);
  whole.ldb = whole.ldc = whole.n;
  if (!blasFits(whole))
    return context.error("extents beyond 32 bits");
  context.parallelFor(extent(batch), [&](int64_t matrix) {
    MatrixProduct part = whole;
    part.a = *a + matrix * whole.m * whole.k;
    part.b = *b + matrix * whole.k * whole.n;
    part.c = c + matrix * whole.m * whole.n;
    multiply(part);
  });
  // Converts [batch,M,N] to the order of the result.
  const Extents made = contiguousStrides(cWalk.shape);
  llvm::SmallVector<Label, 6> order(batch);
  order.append(left.begin(), left.end());
  order.append(right.begin(), right.end());
  Extents strides;
  for (Label label : equation.result)
    strides.push_back(made[static_cast<size_t>(llvm::find(order, label) - order.begin())]);
  auto to = floatResult(context, output);
  if (!to)
    return to.takeError();
  copyStrided(output.shape, strides, c, *to);
  storeFloats(*to, output);
  return llvm::Error::success();
}

/// A row-major traversal of labels that maintains an offset into every operand.
class Odometer {
public:
  Odometer(const Equation& equation, llvm::ArrayRef<Label> labels) {
    for (Label label : labels)
      indices.push_back(&equation.indices.at(label));
    position.assign(labels.size(), 0);
  }
  bool empty() const {
    return llvm::any_of(indices, [](const Index* index) { return index->extent == 0; });
  }
  /// Advances to the next position. After the last one, returns false and is at the first one
  /// again.
  bool advance(llvm::MutableArrayRef<int64_t> offsets) {
    for (size_t axis = indices.size(); axis > 0; --axis) {
      const Index& index = *indices[axis - 1];
      const bool more = ++position[axis - 1] < index.extent;
      for (size_t n = 0; n < offsets.size(); ++n)
        offsets[n] += index.strides[n] * (more ? 1 : 1 - index.extent);
      if (more)
        return true;
      position[axis - 1] = 0;
    }
    return false;
  }

private:
  llvm::SmallVector<const Index*, 6> indices;
  Extents position;
};

template <class T>
void plainSums(KernelContext& context, const Equation& equation, const TensorView& output) {
  using S = std::conditional_t<std::is_integral_v<T>, T, double>;
  llvm::SmallVector<int64_t, 3> offsets(context.inputCount(), 0);
  Odometer results(equation, equation.result);
  Odometer summed(equation, equation.summed);
  const bool nothing = summed.empty();
  T* out = output.as<T>();
  do {
    S sum = 0;
    do {
      if (nothing)
        break;
      S term = 1;
      for (unsigned n = 0; n < offsets.size(); ++n)
        term = wrapping<S>(term, static_cast<S>(load(context.in(n).as<T>()[offsets[n]])),
                           std::multiplies<>());
      sum = wrapping<S>(sum, term, std::plus<>());
    } while (summed.advance(offsets));
    *out++ = store<T>(static_cast<ArithmeticType<T>>(sum));
  } while (results.advance(offsets));
}

llvm::Error einsum(KernelContext& context) {
  const ElementType element = context.in(0).element;
  for (unsigned operand = 1; operand < context.inputCount(); ++operand)
    if (context.in(operand).element != element)
      return context.error("operands have different element types");
  auto equation = parse(context);
  if (!equation)
    return equation.takeError();
  Extents shape;
  for (Label label : equation->result)
    shape.push_back(equation->indices.at(label).extent);
  auto output = context.output(0, element, shape);
  if (!output)
    return output.takeError();
  if (output->elementCount() == 0)
    return llvm::Error::success();
  if (context.inputCount() == 2 && isFloatingPoint(element) && element != ElementType::Double)
    return matrixProducts(context, *equation, *output);
  return dispatch(NumericTypes(), context, element, [&](auto tag) {
    plainSums<typename decltype(tag)::Type>(context, *equation, *output);
    return llvm::Error::success();
  });
}

} // namespace

void register_einsum(KernelRegistry& registry) { registry.add("Einsum", 12, einsum); }

} // namespace kvopt::kernels
