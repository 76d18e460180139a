// Gated short convolutions, whose state does not grow.
#include "driver/synthetic/decoder_parts.h"

#include "support/format.h"

#include <cmath>
#include <limits>

namespace kvopt::driver {
using namespace ir;

Value& shortConvolution(DecoderContext& context, Value& x, int64_t layer) {
  const DecoderSpec& spec = context.spec;
  GraphBuilder& build = context.build;
  const std::string name = formatted("model.layers.{}.conv", layer);
  Value& projected = build.linear(x, name + ".in_proj", spec.hidden, 3 * spec.hidden, 1.0);
  Value& turned = build.transpose(projected, {0, 2, 1});
  Value& widths = build.ints({spec.hidden, spec.hidden, spec.hidden});
  Node& parts = build.node("Split", {&turned, &widths}, {{"axis", 1}}, 0b111);
  Value& fresh = build.op("Mul", {&parts.result(0), &parts.result(2)});
  Value& columns = build.op("Concat", {&context.nextPast(), &fresh}, {{"axis", 2}});
  Value& filter = build.weight(name + ".conv.weight", {spec.hidden, 1, convolutionColumns},
                               1.0 / std::sqrt(static_cast<double>(convolutionColumns)));
  Value& all = build.op("Conv", {&columns, &filter},
                        {{"kernel_shape", std::vector<int64_t>{convolutionColumns}},
                         {"pads", std::vector<int64_t>{0, 0}},
                         {"group", spec.hidden}});
  // One column more than tokens: its last tap is on the last column of the past.
  Value& end = build.ints({std::numeric_limits<int64_t>::max()});
  Value& length = build.listed(build.extent(*context.tokens, 1));
  Value& filtered = build.slice(all, build.op("Neg", {&length}), end, 2);
  Value& gated = build.op("Mul", {&parts.result(1), &filtered});
  context.presents.push_back(&build.slice(columns, build.ints({-convolutionColumns}), end, 2));
  return build.linear(build.transpose(gated, {0, 2, 1}), name + ".out_proj", spec.hidden,
                      spec.hidden, residualGain(spec));
}

} // namespace kvopt::driver
