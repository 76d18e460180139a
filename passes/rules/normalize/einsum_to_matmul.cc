// Replaces a sum of products over one index by a MatMul between transposes.
//
//   before   s = Einsum<"bshd,bthd->bhst">(q, k)
//   after    s = MatMul(Transpose<0,2,1,3>(q), Transpose<0,2,3,1>(k))
//
// Indices of both operands and the result are batch axes. The last free index of each operand
// becomes its rows or columns; earlier ones become batch axes with extent one in the other operand.
// Batch axes keep the result's order, so scores and probabilities need no Transpose between
// products.
#include "ir/attribute.h"
#include "passes/pattern/rule.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

struct Terms {
  std::string a, b, result;
};

/// The three terms, if the equation has two operands and plain letters only, each at most once per
/// term.
std::optional<Terms> parse(llvm::StringRef equation) {
  std::string compact;
  for (char c : equation)
    if (c != ' ')
      compact += c;
  auto [operands, result] = llvm::StringRef(compact).split("->");
  auto [a, b] = operands.split(',');
  if (a.empty() || b.empty())
    return std::nullopt;
  Terms terms{a.str(), b.str(), result.str()};
  if (!llvm::StringRef(compact).contains("->")) {
    // Letters that occur once, in alphabetical order.
    std::string letters = terms.a + terms.b;
    llvm::sort(letters);
    for (char letter : letters)
      if (llvm::StringRef(letters).count(letter) == 1)
        terms.result += letter;
  }
  for (llvm::StringRef term :
       {llvm::StringRef(terms.a), llvm::StringRef(terms.b), llvm::StringRef(terms.result)})
    for (char letter : term)
      if (!llvm::isAlpha(letter) || term.count(letter) != 1)
        return std::nullopt;
  return terms;
}

bool has(llvm::StringRef term, char letter) { return term.contains(letter); }

/// Axes of the product: outer ones in the result's order, then row and column.
struct Layout {
  std::string outer;
  char row = 0, column = 0, summed = 0;

  std::string result() const { return outer + row + column; }
  std::string left() const { return outer + row + summed; }
  std::string right() const { return outer + summed + column; }
};

std::optional<Layout> layoutOf(const Terms& terms) {
  Layout layout;
  for (char letter : terms.result) {
    bool inA = has(terms.a, letter);
    bool inB = has(terms.b, letter);
    if (!inA && !inB)
      return std::nullopt;
    // The last free index of each operand.
    if (!inB)
      layout.row = letter;
    if (!inA)
      layout.column = letter;
  }
  for (char letter : terms.a + terms.b) {
    if (has(terms.result, letter) || letter == layout.summed)
      continue;
    if (layout.summed || !has(terms.a, letter) || !has(terms.b, letter))
      return std::nullopt;
    layout.summed = letter;
  }
  if (!layout.summed || !layout.row || !layout.column)
    return std::nullopt;
  for (char letter : terms.result)
    if (letter != layout.row && letter != layout.column)
      layout.outer += letter;
  return layout;
}

class EinsumToMatmul final : public Rule {
  Var a{"a"}, b{"b"};
  struct Product {
    Terms terms;
    Layout layout;
  };
  Payload<Product> product;

public:
  llvm::StringRef name() const override { return "einsum-to-matmul"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("Einsum", {a, b}); }

  void constraints(Constraints& c) const override {
    c.plan(product,
           "an equation of two operands that sums over one index and keeps rows and columns",
           [](const Match& match) {
             std::optional<Terms> terms = parse(match.root().stringAttr("equation", ""));
             std::optional<Layout> layout = terms ? layoutOf(*terms) : std::nullopt;
             return layout ? std::optional<Product>({*terms, *layout}) : std::nullopt;
           });
    c.check([this](const Match& match, Refusal& refusal) {
      const Terms& terms = match[product].terms;
      for (auto [var, term] : {std::pair(&a, &terms.a), std::pair(&b, &terms.b)}) {
        const Value& operand = match[*var];
        if (!operand.type().hasRank() || operand.type().rank() != term->size())
          return refusal.because([value = &operand] {
            return MatchFailure{ReasonCode::DynamicRank, value->name().str(),
                                "the rank that the equation says", value->type().str(), ""};
          });
      }
      return true;
    });
    // Einsum may broadcast an index of extent one; MatMul broadcasts batch axes only.
    c.check([this](const Match& match, Refusal& refusal) {
      const auto& [terms, layout] = match[product];
      Dim inA = match[a].type().dim(static_cast<int64_t>(terms.a.find(layout.summed)));
      Dim inB = match[b].type().dim(static_cast<int64_t>(terms.b.find(layout.summed)));
      if (!inA.isKnownDifferent(inB))
        return true;
      return refusal.because([&] {
        return MatchFailure{ReasonCode::ShapeMismatch, match.root().name().str(),
                            "one extent of the summed index", inA.str() + " and " + inB.str(), ""};
      });
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    const auto& [terms, layout] = match[product];
    Value& left = arranged(match[a], terms.a, layout.left(), rewriter);
    Value& right = arranged(match[b], terms.b, layout.right(), rewriter);
    Value& made = rewriter.create("MatMul", {&left, &right}, {}, 1, "product").result();
    return rewriter.replace(match.root().result(),
                            transposed(made, layout.result(), terms.result, rewriter));
  }

private:
  static Value& transposed(Value& value, llvm::StringRef from, llvm::StringRef to,
                           Rewriter& rewriter) {
    if (from == to)
      return value;
    std::vector<int64_t> perm;
    for (char letter : to)
      perm.push_back(static_cast<int64_t>(from.find(letter)));
    return rewriter.create("Transpose", {&value}, attrs({{"perm", perm}}), 1, "arranged").result();
  }

  /// The operand with its axes in the order `to`, and axes of extent one for missing letters.
  static Value& arranged(Value& value, llvm::StringRef from, llvm::StringRef to,
                         Rewriter& rewriter) {
    std::string present;
    std::vector<int64_t> inserted;
    for (size_t axis = 0; axis < to.size(); ++axis)
      if (has(from, to[axis]))
        present += to[axis];
      else
        inserted.push_back(static_cast<int64_t>(axis));
    Value& ordered = transposed(value, from, present, rewriter);
    if (inserted.empty())
      return ordered;
    if (rewriter.graph().opsetVersion() >= 13) {
      Value& axes = rewriter.constant("axes", int64Tensor(inserted));
      return rewriter.create("Unsqueeze", {&ordered, &axes}, {}, 1, "arranged").result();
    }
    return rewriter.create("Unsqueeze", {&ordered}, attrs({{"axes", inserted}}), 1, "arranged")
        .result();
  }
};

} // namespace

void register_einsum_to_matmul(RuleRegistry& registry) {
  registry.add(std::make_unique<EinsumToMatmul>());
}

} // namespace kvopt::rules
