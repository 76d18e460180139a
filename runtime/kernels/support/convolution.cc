// Calls of oneDNN for convolutions.
#include "runtime/kernels/support/convolution.h"

#include "runtime/kernels/support/onednn.h"

#include <unordered_map>

namespace kvopt::kernels {

using Tag = dnnl::memory::format_tag;

struct Convolution::Prepared {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  bool hasBias = false;
  dnnl::memory::desc plainX, plainWeights, bias, plainY;
  dnnl::convolution_forward::primitive_desc description;
  dnnl::convolution_forward convolution;
  dnnl::reorder packX, packWeights, unpackY;
  /// Offsets of the parts of the working memory.
  size_t xOffset = 0, yOffset = 0, libraryOffset = 0, scratchBytes = 0;

  bool packsX() const { return description.src_desc() != plainX; }
  bool packsY() const { return description.dst_desc() != plainY; }
};

namespace {
// oneDNN 3 makes the description from its parts, and older versions from a descriptor of them.
template <typename... Parts>
dnnl::convolution_forward::primitive_desc
describeConvolution(const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
                    const Parts&... parts) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, parts..., attributes};
#else
  return {dnnl::convolution_forward::desc(parts...), attributes, engine};
#endif
}

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

dnnl::reorder reorderOf(const dnnl::engine& engine, const dnnl::memory::desc& from,
                        const dnnl::memory::desc& to) {
  return dnnl::reorder(dnnl::reorder::primitive_desc(engine, from, engine, to));
}

} // namespace

Convolution::Convolution(std::unique_ptr<Prepared> library) : prepared(std::move(library)) {}
Convolution::~Convolution() = default;

std::unique_ptr<const Convolution> Convolution::create(const ConvolutionShape& shape,
                                                       bool hasBias) {
  using dnnl::convolution_forward;
  using Dims = dnnl::memory::dims;
  constexpr auto f32 = dnnl::memory::data_type::f32;
  const size_t rank = shape.axes.size();
  if (rank < 1 || rank > 3)
    return nullptr;
  const Tag dataTag = rank == 1 ? Tag::ncw : rank == 2 ? Tag::nchw : Tag::ncdhw;
  const bool isGrouped = shape.groups != 1;
  const Tag weightTag = isGrouped ? (rank == 1   ? Tag::goiw
                                     : rank == 2 ? Tag::goihw
                                                 : Tag::goidhw)
                                  : (rank == 1   ? Tag::oiw
                                     : rank == 2 ? Tag::oihw
                                                 : Tag::oidhw);
  Dims x{1, shape.groups * shape.channels}, y{1, shape.groups * shape.features};
  Dims weights{shape.features, shape.channels}, strides, dilations, padBegin, padEnd;
  if (isGrouped)
    weights.insert(weights.begin(), shape.groups);
  for (const ConvolutionAxis& axis : shape.axes) {
    x.push_back(axis.input);
    y.push_back(axis.output);
    weights.push_back(axis.kernel);
    strides.push_back(axis.stride);
    dilations.push_back(axis.dilation - 1);
    padBegin.push_back(axis.padBegin);
    padEnd.push_back(axis.padEnd);
  }
  useCallingThread();
  try {
    auto prepared = std::make_unique<Prepared>();
    prepared->hasBias = hasBias;
    prepared->plainX = {x, f32, dataTag};
    prepared->plainY = {y, f32, dataTag};
    prepared->plainWeights = {weights, f32, weightTag};
    const auto anyOrder = [&](const Dims& dims) { return dnnl::memory::desc(dims, f32, Tag::any); };
    if (hasBias)
      prepared->bias = {{y[1]}, f32, Tag::x};
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    Prepared& p = *prepared;
    const auto described = [&](const auto&... operands) {
      return describeConvolution(p.engine, attributes, dnnl::prop_kind::forward_inference,
                                 dnnl::algorithm::convolution_direct, operands..., anyOrder(y),
                                 strides, dilations, padBegin, padEnd);
    };
    p.description = hasBias ? described(anyOrder(x), anyOrder(weights), p.bias)
                            : described(anyOrder(x), anyOrder(weights));
    p.convolution = convolution_forward(p.description);
    p.packWeights = reorderOf(p.engine, p.plainWeights, p.description.weights_desc());
    if (p.packsX())
      p.packX = reorderOf(p.engine, p.plainX, p.description.src_desc());
    if (p.packsY())
      p.unpackY = reorderOf(p.engine, p.description.dst_desc(), p.plainY);
    p.yOffset = p.packsX() ? aligned(p.description.src_desc().get_size()) : 0;
    p.libraryOffset = p.yOffset + (p.packsY() ? aligned(p.description.dst_desc().get_size()) : 0);
    p.scratchBytes = p.libraryOffset + aligned(p.description.scratchpad_desc().get_size());
    return std::unique_ptr<const Convolution>(new Convolution(std::move(prepared)));
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

size_t Convolution::weightBytes() const {
  return aligned(prepared->description.weights_desc().get_size());
}
size_t Convolution::scratchBytes() const { return prepared->scratchBytes; }

bool Convolution::packWeights(const float* weights, std::byte* packed) const {
  const Prepared& p = *prepared;
  useCallingThread();
  try {
    dnnl::stream stream(p.engine);
    dnnl::memory from(p.plainWeights, p.engine, address(weights));
    dnnl::memory to(p.description.weights_desc(), p.engine, packed);
    p.packWeights.execute(stream, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
    stream.wait();
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

bool Convolution::run(const float* x, const std::byte* packedWeights, const float* bias, float* y,
                      std::byte* scratch) const {
  const Prepared& p = *prepared;
  useCallingThread();
  try {
    dnnl::stream stream(p.engine);
    dnnl::memory plainX(p.plainX, p.engine, address(x));
    dnnl::memory plainY(p.plainY, p.engine, y);
    dnnl::memory innerX = plainX, innerY = plainY;
    if (p.packsX()) {
      innerX = dnnl::memory(p.description.src_desc(), p.engine, scratch + p.xOffset);
      p.packX.execute(stream, {{DNNL_ARG_FROM, plainX}, {DNNL_ARG_TO, innerX}});
    }
    if (p.packsY())
      innerY = dnnl::memory(p.description.dst_desc(), p.engine, scratch + p.yOffset);
    std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, innerX},
        {DNNL_ARG_WEIGHTS,
         dnnl::memory(p.description.weights_desc(), p.engine, address(packedWeights))},
        {DNNL_ARG_DST, innerY},
        {DNNL_ARG_SCRATCHPAD,
         dnnl::memory(p.description.scratchpad_desc(), p.engine, scratch + p.libraryOffset)}};
    if (p.hasBias)
      arguments.emplace(DNNL_ARG_BIAS, dnnl::memory(p.bias, p.engine, address(bias)));
    p.convolution.execute(stream, arguments);
    if (p.packsY())
      p.unpackY.execute(stream, {{DNNL_ARG_FROM, innerY}, {DNNL_ARG_TO, plainY}});
    stream.wait();
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

} // namespace kvopt::kernels
