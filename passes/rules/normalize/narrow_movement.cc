// Moves data in its storage type instead of a wider type.
//
//   before   y = Cast<float16>(Expand(Cast<float>(x), shape))      x[…] of float16
//   after    y = Expand(x, shape)
//
// Widening is exact, so narrowing moved elements restores every one. ONNX Runtime inserts such
// casts around operators without a float16 kernel.
#include "ir/movement.h"
#include "passes/pattern/rule.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

class NarrowMovement final : public Rule {
  Var moved{"moved"};

  struct Detour {
    Value* stored = nullptr;
    llvm::SmallVector<Node*, 4> movements; ///< last one first
  };
  Payload<Detour> found;

  static std::optional<Detour> detour(Value& moved, ElementType narrow) {
    constexpr unsigned mostMovements = 8;
    Detour found;
    Value* value = &moved;
    while (Node* node = value->producer()) {
      Value* operand = movedOperand(*node);
      if (!operand)
        return std::nullopt;
      if (node->is("Cast")) {
        found.stored = operand->type().elementType() == narrow ? operand : nullptr;
        break;
      }
      if (!picksElements(*movementKind(*node)) || node->results().size() != 1 ||
          found.movements.size() == mostMovements)
        return std::nullopt;
      found.movements.push_back(node);
      value = operand;
    }
    return found.stored ? std::optional<Detour>(std::move(found)) : std::nullopt;
  }

  static bool isNarrow(ElementType type) {
    return type == ElementType::Float16 || type == ElementType::BFloat16;
  }

public:
  llvm::StringRef name() const override { return "narrow-movement"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("Cast", {moved}); }

  void constraints(Constraints& c) const override {
    c.require("a cast from float or double to a 16-bit type", [this](const Match& match) {
      const ElementType wide = match[moved].type().elementType();
      return isNarrow(match.root().result().type().elementType()) &&
             (wide == ElementType::Float || wide == ElementType::Double);
    });
    c.plan(found, "data movement of what is cast from that type", [this](const Match& match) {
      return detour(match[moved], match.root().result().type().elementType());
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    const auto& [stored, movements] = match[found];
    Value* value = stored;
    for (Node* node : llvm::reverse(movements)) {
      value = &rewriter.createLike(*node, operandsMoving(*node, *value), "moved").result();
    }
    return rewriter.replace(match.root().result(), *value);
  }
};

} // namespace

void register_narrow_movement(RuleRegistry& registry) {
  registry.add(std::make_unique<NarrowMovement>());
}

} // namespace kvopt::rules
