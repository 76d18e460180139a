// Generation of whole decoders: interface, layers, merged branches.
#include "driver/synthetic/decoder.h"

#include "driver/synthetic/decoder_parts.h"
#include "ir/op.h"
#include "support/format.h"

namespace kvopt::driver {
using namespace ir;

namespace {

/// Gain of the logits, large enough for a clear lead of the most likely token.
constexpr double logitGain = 3.0;

struct CacheNames {
  std::string past;
  std::string present;
  int64_t heads;
  int64_t width;
  ElementType element;
  /// Whether the cache is a state [B,heads,width]; others are [B,heads,rows,width].
  bool isState = false;

  Shape shape(const Dim& rows) const {
    Shape extents{Dim::symbol("batch_size"), Dim::fixed(heads)};
    if (!isState)
      extents.push_back(rows);
    extents.push_back(Dim::fixed(width));
    return extents;
  }
};

std::vector<CacheNames> cachesOfLayer(const DecoderSpec& spec, int64_t layer) {
  const ElementType element = spec.codeBits == 8   ? ElementType::Int8
                              : spec.codeBits == 4 ? ElementType::UInt8
                                                   : spec.real;
  const auto named = [&](const char* part, int64_t width) {
    return CacheNames{formatted("past_key_values.{}.{}", layer, part),
                      formatted("present.{}.{}", layer, part), spec.kvHeads,
                      spec.codeBits == 4 ? (width + 1) / 2 : width, element};
  };
  if (isConvolution(spec, layer))
    return {{formatted("past_conv.{}", layer), formatted("present_conv.{}", layer), spec.hidden,
             convolutionColumns, spec.real, true}};
  switch (spec.kind) {
  case DecoderKind::MlaLatent:
    return {{formatted("past_latent.{}", layer), formatted("present_latent.{}", layer), 1,
             spec.latentWidth + spec.ropeWidth, spec.real}};
  case DecoderKind::Mla:
    return {named("key", spec.headWidth + spec.ropeWidth), named("value", spec.valueWidth)};
  case DecoderKind::EncoderDecoder:
    return {named("decoder.key", spec.headWidth), named("decoder.value", spec.headWidth)};
  default:
    return {named("key", spec.headWidth), named("value", spec.headWidth)};
  }
}

class DecoderBuilder {
public:
  DecoderBuilder(Model& built, const DecoderSpec& decoder)
      : model(built), spec(decoder), build(built, decoder) {
    if (spec.cache == DecoderCache::None)
      return;
    for (int64_t layer = 0; layer < spec.layers; ++layer)
      for (CacheNames& cache : cachesOfLayer(spec, layer))
        caches.push_back(std::move(cache));
  }

  void buildModel() {
    const bool isScript = spec.spelling == DecoderSpelling::TorchScript;
    model.opsets[""] = spec.opset;
    if (spec.fourBit || spec.spelling == DecoderSpelling::GroupQueryAttention)
      model.opsets["com.microsoft"] = 1;
    model.irVersion = spec.opset >= 23 ? 11 : spec.opset >= 21 ? 10 : 8;
    model.producerName = isScript ? "pytorch" : "pytorch_dynamo";
    if (spec.spelling == DecoderSpelling::GroupQueryAttention)
      model.producerName = "onnxruntime-genai";
    build.graph().setName("main_graph");
    addInputs();
    std::vector<std::string> names{"logits"};
    for (const CacheNames& cache : caches)
      names.push_back(cache.present);
    if (spec.merged)
      addBranches(names);
    else
      addDecoder(names, spec.cache != DecoderCache::None);
  }

private:
  bool isContrib() const { return spec.spelling == DecoderSpelling::GroupQueryAttention; }
  bool isStatic() const { return spec.cache == DecoderCache::Static; }
  bool hasPositions() const { return !isContrib() || !spec.isRotary(); }

  void addInputs() {
    Graph& graph = build.graph();
    const Dim batch = Dim::symbol("batch_size");
    const Dim past =
        isStatic() ? Dim::fixed(spec.maxPositions) : Dim::symbol("past_sequence_length");
    const Dim keys = isStatic()                         ? Dim::fixed(spec.maxPositions)
                     : spec.cache == DecoderCache::None ? Dim::symbol("sequence_length")
                                                        : Dim::symbol("total_sequence_length");
    const Shape tokenShape{batch, Dim::symbol("sequence_length")};
    tokens = &graph.addInput("input_ids", {ElementType::Int64, tokenShape});
    padding = &graph.addInput("attention_mask", {ElementType::Int64, Shape{batch, keys}});
    if (hasPositions())
      positions = &graph.addInput("position_ids", {ElementType::Int64, tokenShape});
    if (isStatic())
      slots = &graph.addInput("cache_position",
                              {ElementType::Int64, Shape{Dim::symbol("sequence_length")}});
    for (const CacheNames& cache : caches)
      pasts.push_back(&graph.addInput(cache.past, {cache.element, cache.shape(past)}));
    if (spec.kind != DecoderKind::EncoderDecoder)
      return;
    for (int64_t layer = 0; layer < spec.layers; ++layer)
      for (const char* role : {"key", "value"})
        encoderRows.push_back(&graph.addInput(
            formatted("past_key_values.{}.encoder.{}", layer, role),
            {spec.real, Shape{batch, Dim::fixed(spec.heads), Dim::symbol("encoder_sequence_length"),
                              Dim::fixed(spec.headWidth)}}));
  }

  void addBranches(llvm::ArrayRef<std::string> names) {
    Graph& main = build.graph();
    Value& flag = main.addInput("use_cache_branch", TensorType::fixed(ElementType::Bool, {1}));
    llvm::SmallVector<llvm::StringRef, 8> results(names.begin(), names.end());
    Node& choice = main.create(OpName("If"), {&flag}, results);
    for (bool hasPast : {false, true}) {
      std::vector<std::unique_ptr<Graph>> branch;
      branch.push_back(std::make_unique<Graph>(model.context(), model.opsets, &choice));
      build.enter(*branch.back());
      build.graph().setName(hasPast ? "with_past" : "no_past");
      std::vector<std::string> inner;
      for (const std::string& name : names)
        inner.push_back(build.graph().name().str() + "/" + name);
      addDecoder(inner, hasPast);
      choice.setAttribute(hasPast ? "then_branch" : "else_branch",
                          Attribute::ofGraphs(std::move(branch), false));
    }
    build.enter(main);
    for (Value& result : choice.results())
      main.addOutput(result);
  }

  /// Adds the decoder with its outputs to the current graph.
  void addDecoder(llvm::ArrayRef<std::string> names, bool hasPast) {
    DecoderContext context(build, spec);
    context.tokens = tokens;
    context.padding = padding;
    context.positions = positions;
    context.slots = slots;
    if (hasPast)
      context.pasts = pasts;
    build.setScope("");
    Value& embedded = embed();
    if (isContrib()) {
      addKeyCounts(context);
    } else {
      addLengths(context, embedded, hasPast ? firstRows() : nullptr);
      addMask(context);
    }
    if (spec.isRotary())
      addRotation(context, spec.isLatent() ? spec.ropeWidth : spec.headWidth);
    Value& last = addLayers(context, embedded);
    build.setScope("");
    Value& logits = build.linear(last, "lm_head", spec.hidden, spec.vocabulary, logitGain);
    const Dim batch = Dim::symbol("batch_size");
    const Dim sequence = Dim::symbol("sequence_length");
    output(logits, names.front(), {spec.real, Shape{batch, sequence, Dim::fixed(spec.vocabulary)}});
    const Dim past = Dim::symbol("past_sequence_length");
    // The caller determines the length of the fused operator's shared buffer.
    const Dim rows = isContrib()                            ? Dim::symbol("total_sequence_length")
                     : isStatic()                           ? Dim::fixed(spec.maxPositions)
                     : spec.cache == DecoderCache::LastRows ? Dim::symbol("kept_sequence_length")
                     : hasPast                              ? past + sequence
                                                            : sequence;
    for (size_t i = 0; i < names.size() - 1; ++i)
      output(*context.presents[i], names[i + 1], {caches[i].element, caches[i].shape(rows)});
  }

  /// A cache whose extent is the length of the past.
  Value* firstRows() const {
    for (size_t i = 0; i < caches.size(); ++i)
      if (!caches[i].isState)
        return pasts[i];
    return nullptr;
  }

  Value& embed() {
    Value& words = build.weight("model.embed_tokens.weight", {spec.vocabulary, spec.hidden}, 1.0);
    Value& embedded = build.op("Gather", {&words, tokens});
    if (spec.isRotary())
      return embedded;
    Value& places =
        build.weight("model.embed_positions.weight", {spec.maxPositions, spec.hidden}, 0.5);
    return build.op("Add", {&embedded, &build.op("Gather", {&places, positions})});
  }

  Value& normed(Value& x, const std::string& name) {
    return spec.isRotary() ? build.rmsNorm(x, name, spec.hidden)
                           : build.layerNorm(x, name, spec.hidden);
  }

  /// Adds delta to x, and returns the norm of the sum.
  Value& addAndNorm(Value*& x, Value& delta, const std::string& name) {
    if (!isContrib()) {
      x = &build.op("Add", {x, &delta});
      return normed(*x, name);
    }
    Value& gamma = build.weight(name + ".weight", {spec.hidden}, 0.1, 1.0);
    llvm::SmallVector<Value*, 4> operands{x, &delta, &gamma};
    if (!spec.isRotary())
      operands.push_back(&build.weight(name + ".bias", {spec.hidden}, 0.1));
    Node& both = build.node(spec.isRotary() ? "com.microsoft::SkipSimplifiedLayerNormalization"
                                            : "com.microsoft::SkipLayerNormalization",
                            operands, {{"epsilon", normEpsilon}}, 0b1001);
    x = &both.result(3);
    return both.result(0);
  }

  /// Adds all layers, and returns the last norm of their sum.
  Value& addLayers(DecoderContext& context, Value& embedded) {
    Value* x = &embedded;
    Value* y = nullptr;
    for (int64_t layer = 0; layer < spec.layers; ++layer) {
      const std::string name = formatted("model.layers.{}", layer);
      build.setScope(
          formatted("layers.{}/{}/", layer, isConvolution(spec, layer) ? "conv" : "self_attn"));
      if (!y)
        y = &normed(*x, name + ".input_layernorm");
      Value& attended = isConvolution(spec, layer) ? shortConvolution(context, *y, layer)
                        : spec.isLatent()          ? latentAttention(context, *y, layer)
                                                   : selfAttention(context, *y, layer);
      if (spec.kind == DecoderKind::EncoderDecoder) {
        build.setScope(formatted("layers.{}/encoder_attn/", layer));
        y = &addAndNorm(x, attended, name + ".encoder_attn_layer_norm");
        const auto cache = static_cast<size_t>(2 * layer);
        Value& crossed =
            crossAttention(context, *y, layer, *encoderRows[cache], *encoderRows[cache + 1]);
        y = &addAndNorm(x, crossed, name + ".post_attention_layernorm");
      } else {
        y = &addAndNorm(x, attended, name + ".post_attention_layernorm");
      }
      build.setScope(formatted("layers.{}/mlp/", layer));
      Value& fed = feedForward(*y, name + ".mlp");
      y = &addAndNorm(x, fed,
                      layer + 1 == spec.layers
                          ? "model.norm"
                          : formatted("model.layers.{}.input_layernorm", layer + 1));
    }
    return *y;
  }

  Value& feedForward(Value& x, const std::string& name) {
    if (!spec.isRotary()) {
      Value& wide = build.linear(x, name + ".fc1", spec.hidden, spec.intermediate, 1.0, true);
      return build.linear(build.gelu(wide), name + ".fc2", spec.intermediate, spec.hidden,
                          residualGain(spec), true);
    }
    Value& gate =
        build.silu(build.linear(x, name + ".gate_proj", spec.hidden, spec.intermediate, 1.0));
    Value& up = build.linear(x, name + ".up_proj", spec.hidden, spec.intermediate, 1.0);
    return build.linear(build.op("Mul", {&gate, &up}), name + ".down_proj", spec.intermediate,
                        spec.hidden, residualGain(spec));
  }

  void output(Value& value, const std::string& name, TensorType type) {
    value.setType(std::move(type));
    build.graph().rename(value, name);
    build.graph().addOutput(value);
  }

  Model& model;
  const DecoderSpec& spec;
  GraphBuilder build;
  std::vector<CacheNames> caches;
  Value* tokens = nullptr;
  Value* padding = nullptr;
  Value* positions = nullptr;
  Value* slots = nullptr;
  std::vector<Value*> pasts;
  std::vector<Value*> encoderRows;
};

} // namespace

std::unique_ptr<Model> generateDecoder(const OpRegistry& ops, const DecoderSpec& spec) {
  auto model = std::make_unique<Model>(ops);
  DecoderBuilder(*model, spec).buildModel();
  return model;
}

int64_t weightBytes(const Model& model) {
  int64_t total = 0;
  for (const std::unique_ptr<Value>& value : model.graph().initializers())
    if (value->initializer())
      total += value->initializer()->byteSize().value_or(0);
  return total;
}

size_t nodeCount(Model& model) {
  size_t count = 0;
  forEachGraph(model.graph(), [&](Graph& graph) { count += graph.nodes().size(); });
  return count;
}

int64_t layersForNodes(const OpRegistry& ops, DecoderSpec spec, size_t nodes) {
  spec.layers = 1;
  const size_t one = nodeCount(*generateDecoder(ops, spec));
  spec.layers = 2;
  const size_t each = nodeCount(*generateDecoder(ops, spec)) - one;
  return nodes <= one ? 1 : static_cast<int64_t>(1 + (nodes - one + each - 1) / each);
}

} // namespace kvopt::driver
