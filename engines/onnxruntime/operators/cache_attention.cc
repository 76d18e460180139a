// Attributes and element types of the operators.
#include "engines/onnxruntime/operators/cache_attention.h"

#include "engines/onnxruntime/operators/cache_call.h"

#include <algorithm>

namespace kvopt::onnxruntime {
using ir::CacheOperatorForm;

namespace {

class CacheAttention : public Operation {
public:
  explicit CacheAttention(const CacheSettings& ofNode) : settings(ofNode) {}
  void compute(Call& call) const override {
    switch (settings.form->place) {
    case ir::CachePlace::Buffer:
      return attendInBuffer(call, settings, notice);
    case ir::CachePlace::Ring:
      return attendInRing(call, settings, notice);
    case ir::CachePlace::Blocks:
      return attendInBlocks(call, settings);
    }
  }

private:
  CacheSettings settings;
  CopyNotice notice;
};

std::string reasonAgainstPasts(const NodeDescription& node, const CacheOperatorForm& form) {
  for (unsigned side = 0; side < form.sides(); ++side) {
    const ElementType fresh = node.typeOf(CacheOperatorForm::fresh(side));
    const ElementType past = node.typeOf(form.past(side));
    const bool fits = form.hasCodes() ? storageOf(fresh) && (past == int8 || past == uint8)
                                      : past == fresh && (storageOf(past) || past == int8);
    if (!fits)
      return std::string("cache of ") + elementName(past);
  }
  return node.typeOf(form.pastLength()) == int64 ? "" : "type of past_length";
}

std::string reasonAgainstBlocks(const NodeDescription& node, const CacheOperatorForm& form) {
  const ElementType fresh = node.typeOf(CacheOperatorForm::fresh(0));
  if (form.hasCodes() ? fresh != int8 : !storageOf(fresh))
    return std::string("new rows of ") + elementName(fresh);
  if (node.typeOf(CacheOperatorForm::fresh(form.sides() - 1)) != fresh)
    return "keys and values of different types";
  if (node.inputs.size() <= form.firstBlock())
    return "";
  const size_t blocks = node.inputs.size() - form.firstBlock();
  if (blocks % form.blockLists() != 0)
    return std::to_string(blocks) + " blocks";
  const size_t ofRows = blocks / form.parts();
  for (size_t i = 0; i < blocks; ++i)
    if (node.typeOf(form.firstBlock() + i) != (i < ofRows ? fresh : f32))
      return std::string("block of ") + elementName(node.typeOf(form.firstBlock() + i));
  return "";
}

/// Element types for a query of `query`, new rows of `fresh` and caches of `cache`.
OperatorTypes typesOf(const CacheOperatorForm& form, ElementType query, ElementType fresh,
                      ElementType cache) {
  using Count = TypedFormal::Count;
  OperatorTypes types{{{query}}, {{query}}};
  types.inputs.insert(types.inputs.end(), form.sides(), {fresh});
  for (unsigned side = 0; side < form.sides() && !form.isInBlocks(); ++side)
    for (unsigned part = 0; part < form.parts(); ++part) {
      const ElementType type = part == 0 ? cache : f32;
      types.inputs.push_back({type});
      types.outputs.push_back({type, Count::optional});
    }
  if (!form.isInBlocks())
    types.inputs.push_back({int64});
  types.inputs.push_back({anyType, Count::optional}); // a mask, boolean or floating-point
  types.inputs.push_back({f32, Count::optional});
  if (form.isInBlocks()) {
    if (form.hasCodes())
      types.inputs.insert(types.inputs.end(), form.sides(), {f32});
    types.inputs.push_back({anyType, Count::any});
  }
  return types;
}

} // namespace

Offer cacheAttention(const NodeDescription& node) {
  CacheSettings settings;
  for (const CacheOperatorForm& form : ir::cacheOperatorForms)
    if (node.fullName() == form.name)
      settings.form = &form;
  if (!settings.form)
    return Offer::refused("another operator");
  const CacheOperatorForm& form = *settings.form;
  std::string reason =
      readAttributes(node, {"key_axis", "value_axis", "v_width", "v_offset"}, settings.attention);
  if (reason.empty())
    reason = reasonAgainstTypes(node, form.mask(), form.sinks());
  if (reason.empty())
    reason = form.isInBlocks() ? reasonAgainstBlocks(node, form) : reasonAgainstPasts(node, form);
  if (!reason.empty())
    return Offer::refused(std::move(reason));
  // Without the attribute, the operators take an additive mask.
  settings.attention.hasBooleanMask = settings.attention.hasBooleanMask.value_or(false);
  for (unsigned side = 0; side < form.sides(); ++side)
    settings.axes[side] = node.integer(CacheOperatorForm::axisName(side), 2);
  settings.valueWidth = node.integer("v_width", 0);
  settings.valueOffset = node.integer("v_offset", 0);
  return {std::make_unique<CacheAttention>(settings), ""};
}

std::vector<OperatorTypes> cacheAttentionTypes(const CacheOperatorForm& form) {
  std::vector<OperatorTypes> all;
  for (const NumberTypes& types : numberTypes)
    if (!form.hasCodes() && !(form.isInBlocks() && types.rows == int8))
      all.push_back(typesOf(form, types.query, types.rows, types.rows));
  for (const ElementType query : queryTypes)
    for (const ElementType codes : {int8, uint8})
      if (form.hasCodes() && !(form.isInBlocks() && codes == uint8))
        all.push_back(typesOf(form, query, form.isInBlocks() ? int8 : query, codes));
  return all;
}

} // namespace kvopt::onnxruntime
