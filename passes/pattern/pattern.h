// The pattern language: what a rule's author writes.
//
//   Var x{"x"}, c{"c"};
//   P pattern() const override {                       // softmax(x * c) or softmax(x)
//     P scaled = optional(commutative("Mul", {x, constant(c)}), x);
//     return op("Softmax", {scaled}, attrs({{"axis", -1}}));
//   }
//
// A pattern is anchored at one root operator and follows operands backwards. It is a value: cheap
// to copy, immutable, shared by all matches.
#pragma once

#include "ir/attribute_list.h"
#include "ir/op_name.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kvopt::pattern {

/// A capture: the value that a place of the pattern matched, read back as `match[var]`. Vars are
/// members of their rule and are identified by address. One Var used at two places matches the same
/// value at both.
class Var {
public:
  explicit Var(const char* varName) : text(varName) {}
  Var(const Var&) = delete;
  Var& operator=(const Var&) = delete;
  const char* name() const { return text; }

private:
  const char* text;
};

struct PatternNode;

/// A pattern. Converts from a Var, which matches any present value and captures it.
class P {
public:
  P(const Var& var); // NOLINT(google-explicit-constructor)
  explicit P(std::shared_ptr<const PatternNode> patternNode) : pointer(std::move(patternNode)) {}
  const PatternNode& node() const { return *pointer; }

private:
  std::shared_ptr<const PatternNode> pointer;
};

/// A named alternative of `oneOf`.
struct Alternative {
  std::string name;
  P pattern;
};

/// Result number `result` of a node with this operator, these operands and these attributes. The
/// node has no other operands, except absent ones, and may have other attributes. Axes (`axis`,
/// `axes`, `perm`) compare after normalization by the rank that they count in: the rank of the
/// first operand, or of the result for Unsqueeze and OneHot. An attribute that is not written has
/// its default value.
P op(ir::OpName name, std::vector<P> operands, ir::AttributeList attributes = {},
     unsigned result = 0);
/// The same pattern with the two operands in either order.
P commutative(ir::OpName name, std::vector<P> operands);
/// Any of the alternatives, tried in order; `match.choice(tag)` names the one that matched.
P oneOf(std::string tag, std::vector<Alternative> alternatives);
/// `with` or, if that cannot be part of a match, `without`.
P optional(P with, P without);
/// Captures the value that `pattern` matches.
P bind(const Var& var, P pattern);
/// A value with fixed contents, captured.
P constant(const Var& var);
/// Any value, not captured.
P any();
/// A trailing operand that may be absent; it is captured if present.
P maybe(const Var& var);
/// The matched node's result may have readers outside the match. The rewrite must replace such a
/// value or leave it alive.
P escaping(P pattern);

/// One place of a pattern. Made by the functions above only.
struct PatternNode {
  enum class Kind { Var, Op, OneOf, Bind, Constant, Any, Maybe, Escaping };
  Kind kind = Kind::Any;
  const Var* var = nullptr;
  ir::OpName name;
  std::string nameText; // owns what `name` points to
  bool isCommutative = false;
  unsigned result = 0;
  std::vector<P> children;
  ir::AttributeList attributes;
  std::string tag;
  std::vector<std::string> alternativeNames;
};

} // namespace kvopt::pattern
