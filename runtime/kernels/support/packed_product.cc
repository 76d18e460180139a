// Calls of oneDNN for matrix products.
#include "runtime/kernels/support/packed_product.h"

#include "runtime/kernels/support/onednn.h"

namespace kvopt::kernels {

struct PackedProduct::Prepared {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::matmul::primitive_desc description;
  dnnl::matmul product;
};

namespace {

/// Whether W is read as consecutive strips of 64 columns: [columns/64][inner/16][16][64], and for
/// codes [columns/64][inner/64][16][64][4].
bool readsStrips(const dnnl::memory::desc& weights, PackedProduct::Kind kind, int64_t inner) {
  const bool isCodes = kind == PackedProduct::Kind::Codes;
  const dnnl_memory_desc_t& desc = weights.data;
  const dnnl_blocking_desc_t& blocks = desc.format_desc.blocking;
  if (desc.format_kind != dnnl_blocked || desc.offset0 != 0 ||
      blocks.inner_nblks != (isCodes ? 3 : 2))
    return false;
  if (blocks.inner_idxs[0] != 0 || blocks.inner_blks[0] != 16 || blocks.inner_idxs[1] != 1 ||
      blocks.inner_blks[1] != 64)
    return false;
  if (isCodes && (blocks.inner_idxs[2] != 0 || blocks.inner_blks[2] != 4))
    return false;
  const int64_t innerBlock = isCodes ? 64 : 16;
  const int64_t padded = (inner + innerBlock - 1) / innerBlock * innerBlock;
  return blocks.strides[0] == innerBlock * 64 && blocks.strides[1] == padded * 64;
}

/// Whether sums of products of codes are exact on this CPU.
bool hasExactCodes() {
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) &
          static_cast<unsigned>(dnnl::cpu_isa::avx512_core_vnni)) ==
         static_cast<unsigned>(dnnl::cpu_isa::avx512_core_vnni);
}

} // namespace

PackedProduct::PackedProduct(std::unique_ptr<Prepared> library) : prepared(std::move(library)) {}
PackedProduct::~PackedProduct() = default;

std::unique_ptr<const PackedProduct> PackedProduct::create(Kind kind, int64_t rows, int64_t inner,
                                                           int64_t columns) {
  using Type = dnnl::memory::data_type;
  using Tag = dnnl::memory::format_tag;
  const bool isCodes = kind == Kind::Codes;
  if (inner == 0 || (isCodes && !hasExactCodes()))
    return nullptr;
  useCallingThread();
  try {
    auto prepared = std::make_unique<Prepared>();
    const dnnl::memory::desc a({rows, inner}, isCodes ? Type::u8 : Type::f32, Tag::ab);
    const dnnl::memory::desc weights({inner, columns}, isCodes ? Type::s8 : Type::f32, Tag::any);
    const dnnl::memory::desc out({rows, columns}, isCodes ? Type::s32 : Type::f32, Tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    prepared->description = dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, weights, out),
                                                         attributes, prepared->engine);
    if (!readsStrips(prepared->description.weights_desc(), kind, inner))
      return nullptr;
    prepared->product = dnnl::matmul(prepared->description);
    return std::unique_ptr<const PackedProduct>(new PackedProduct(std::move(prepared)));
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

size_t PackedProduct::scratchBytes() const {
  return (prepared->description.scratchpad_desc().get_size() + 63) / 64 * 64;
}

bool PackedProduct::run(const void* a, const void* strips, void* out, std::byte* scratch) const {
  const Prepared& p = *prepared;
  useCallingThread();
  try {
    dnnl::stream stream(p.engine);
    p.product.execute(
        stream,
        {{DNNL_ARG_SRC, dnnl::memory(p.description.src_desc(), p.engine, address(a))},
         {DNNL_ARG_WEIGHTS, dnnl::memory(p.description.weights_desc(), p.engine, address(strips))},
         {DNNL_ARG_DST, dnnl::memory(p.description.dst_desc(), p.engine, out)},
         {DNNL_ARG_SCRATCHPAD, dnnl::memory(p.description.scratchpad_desc(), p.engine, scratch)}});
    stream.wait();
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

} // namespace kvopt::kernels
