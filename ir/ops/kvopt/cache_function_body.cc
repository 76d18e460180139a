// Bodies of all operators over caches, composed of parts for place, rows and sharing.
#include "ir/ops/kvopt/cache_function_body.h"

#include "ir/ops/kvopt/code_row_parts.h"
#include "ir/ops/kvopt/function_body_parts.h"
#include "support/format.h"

namespace kvopt::ir {
namespace {

/// One tensor of a cache: its numbers, codes, or scales.
struct CachePart {
  std::string name;
  const CacheLayout* layout;
};

class CacheText {
public:
  CacheText(const CacheOperator& written, const BodyForm& bodyForm, const CacheBody& caches)
      : op(written), form(bodyForm), blocks(caches.blocks) {
    for (unsigned side = 0; side < op.sides(); ++side) {
      sides.emplace_back(CacheOperator::sideName(side));
      const CacheLayout* layout = side == 0 ? &caches.key : &caches.value;
      if (!op.hasCodes())
        parts.push_back({sides.back(), layout});
      else
        for (const char* part : {"_code", "_scale"})
          parts.push_back({sides.back() + part, layout});
    }
  }

  std::string write() const {
    const std::string body = op.isInBlocks() ? inBlocks() : inPlace();
    return functionText(form.opset, signature(), body);
  }

private:
  /// Caches of int8 that hold numbers are converted to floats.
  const char* suffix() const { return form.int8Caches ? "_codes" : ""; }

  std::string signature() const {
    std::string operands = "query", results = "output";
    for (const std::string& side : sides)
      operands += formatted(", {}{}_new{}", side, op.isInBlocks() && op.hasCodes() ? "_code" : "",
                            suffix());
    if (op.isInBlocks()) {
      // The operand `sinks` keeps its position even if it is absent.
      operands += ", mask, sinks";
      if (op.hasCodes())
        for (const std::string& side : sides)
          operands += formatted(", {}_scale_new", side);
      for (bool isScale : {false, true})
        for (size_t i = 0; i < parts.size(); ++i)
          if (isScale == (op.hasCodes() && i % 2 != 0))
            operands += blockFormals(parts[i].name, blocks);
    } else {
      for (const std::string& side : sides)
        for (const char* part : {"", "_scale"})
          if (*part == '\0' || op.hasCodes()) {
            operands += formatted(", past_{}{}{}", side, part, suffix());
            results += formatted(", present_{}{}{}", side, part, suffix());
          }
      operands += formatted(", past_length, mask{}", sinksFormal(form));
    }
    return formatted("{} <scale, causal, window, softcap, mask_boolean{}>\n    ({})\n    => ({})",
                     op.name().type().str(), op.isLatent() ? ", v_offset, v_width" : "", operands,
                     results);
  }

  std::string inPlace() const {
    std::string text = "\n" + toNumbers() + std::string(extentsText);
    if (op.hasCodes())
      text += op.code->constantsText;
    for (const std::string& side : sides)
      text += newExtentsText(side);
    text += groupsOfNewRowsText;
    if (op.hasCodes())
      for (const std::string& side : sides)
        text += writtenCodesText(side, *op.code, form.opset) + pastCodesText(side);
    for (const CachePart& part : parts)
      text +=
          (op.hasCodes() ? newExtentsText(part.name) : "") + pastRowsText(part.name, *part.layout);
    if (op.hasCodes())
      text += "    key_past_rows = Identity (key_code_past_rows)\n";
    text += op.isRing() ? readAndWrittenRing() : slotsText + updates();
    if (op.hasCodes())
      for (const std::string& side : sides)
        text += readCodesText(side, *op.code) + presentCodesText(side, *op.code);
    if (op.isLatent())
      text += latentValuesText;
    return text + attentionText(form, op.isRing() ? "mask_of_keys" : "mask") + toCodes();
  }

  std::string updates() const {
    std::string text;
    for (const CachePart& part : parts)
      text += cacheUpdateText(part.name, *part.layout);
    return text;
  }

  /// The order of these nodes is fixed, because files already contain it.
  std::string readAndWrittenRing() const {
    std::string read, written, both;
    for (const CachePart& part : parts) {
      const std::string rows = ringRowsText(part.name);
      const std::string update = writtenRowsText(part.name, *part.layout, part.name + "s");
      read += rows;
      written += update;
      both += rows + update;
    }
    return ringSlotsText + (op.hasCodes() ? both : read + written);
  }

  std::string inBlocks() const {
    std::string text = extentsText;
    if (!op.hasCodes()) {
      for (const CachePart& part : parts)
        text += newExtentsText(part.name);
      text += groupsOfNewRowsText;
    }
    for (const CachePart& part : parts) {
      if (op.hasCodes())
        text += newExtentsText(part.name);
      if (part.name == "key_code")
        text += "    groups = Gather (key_code_new_shape, i1)\n";
      text += joinedBlocksText(part.name, blocks, *part.layout);
    }
    if (op.hasCodes())
      for (const std::string& side : sides)
        text += formatted("    {0}_numbers = Cast <to = 1> ({0}_codes)\n"
                          "    {0}s = Mul ({0}_numbers, {0}_scales)\n",
                          side);
    if (op.isLatent())
      text += latentValuesText;
    else if (op.hasCodes())
      text += "    value_width = Identity (value_code_width)\n";
    return text + joinedSequenceText + everyKeyValidText + attentionText(form);
  }

  std::string toNumbers() const {
    std::string text;
    if (form.int8Caches)
      for (const char* rows : {"key_new", "value_new", "past_key", "past_value"})
        text += formatted("    {0} = Cast <to = 1> ({0}_codes)\n", rows);
    return text;
  }

  std::string toCodes() const {
    std::string text;
    if (form.int8Caches)
      for (const char* rows : {"present_key", "present_value"})
        text += formatted("    {0}_codes = Cast <to = 3> ({0})\n", rows);
    return text;
  }

  CacheOperator op;
  BodyForm form;
  size_t blocks;
  std::vector<std::string> sides;
  std::vector<CachePart> parts;
};

} // namespace

std::string cacheFunctionText(const CacheOperator& op, const BodyForm& form,
                              const CacheBody& caches) {
  return CacheText(op, form, caches).write();
}

} // namespace kvopt::ir
