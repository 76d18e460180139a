// Keys and values repeated over the query heads of their group → grouped Sdpa.
//
//   before   K = Reshape(Expand(Unsqueeze(k, 2), [B,G,N,T,D]), [B,G*N,T,D])   (V likewise)
//            o = ai.kvopt.Sdpa(q, K, V, …)
//   after    o = ai.kvopt.Sdpa(q, k, v, …)
//
// The shapes alone prove it: inserting an axis of extent one and merging adjacent axes move no
// data, so head h of K is head h / N of k.
#include "passes/rule.h"

namespace kvopt {
namespace {

class StripGqaBroadcast final : public Rule {
  struct Chain {
    Var kept, unsqueezed, expanded, whole;
    Chain(const char* a, const char* b, const char* c, const char* d)
        : kept(a), unsqueezed(b), expanded(c), whole(d) {}
  };
  Var q{"q"}, mask{"mask"}, sinks{"sinks"};
  Chain k{"k", "k_unsqueezed", "k_expanded", "k_all_heads"};
  Chain v{"v", "v_unsqueezed", "v_expanded", "v_all_heads"};

  static P broadcast(const Chain& chain) {
    P unsqueezed = oneOf("", {{"operand", op("Unsqueeze", {chain.kept, any()})},
                              {"attribute", op("Unsqueeze", {chain.kept})}});
    P expanded = op("Expand", {bind(chain.unsqueezed, escaping(std::move(unsqueezed))), any()});
    P merged = op("Reshape", {bind(chain.expanded, escaping(std::move(expanded))), any()});
    return bind(chain.whole, escaping(std::move(merged)));
  }

  static void broadcastShapes(Constraints& c, const Chain& chain, const std::string& width) {
    c.shape(chain.kept, {"B", "G", "T", width});
    c.shape(chain.unsqueezed, {"B", "G", "1", "T", width});
    c.shape(chain.expanded, {"B", "G", "N", "T", width});
    c.shape(chain.whole, {"B", "G*N", "T", width});
  }

public:
  llvm::StringRef name() const override { return "strip-gqa-broadcast"; }
  RuleGroup group() const override { return RuleGroup::Strip; }

  P pattern() const override {
    return op("ai.kvopt::Sdpa", {q, broadcast(k), broadcast(v), maybe(mask), maybe(sinks)});
  }

  void constraints(Constraints& c) const override {
    broadcastShapes(c, k, "D");
    broadcastShapes(c, v, "Dv");
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& before = match.root();
    llvm::SmallVector<Value*, 5> operands{&match[q], &match[k.kept], &match[v.kept],
                                          match.find(mask), match.find(sinks)};
    while (!operands.back())
      operands.pop_back();
    std::vector<NamedAttribute> attributes;
    for (const NamedAttribute& attribute : before.attributes())
      attributes.push_back({attribute.name, attribute.value.clone()});
    Node& grouped = rewriter.create(before.op(), operands, std::move(attributes), 1, "attention");
    grouped.setMetadata(before.metadata());
    return rewriter.replace(before.result(), grouped.result());
  }
};

} // namespace

void register_strip_gqa_broadcast(RuleRegistry& registry) {
  registry.add(std::make_unique<StripGqaBroadcast>());
}

} // namespace kvopt
