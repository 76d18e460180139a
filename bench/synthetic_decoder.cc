// Builds the decoders layer by layer.
#include "bench/synthetic_decoder.h"

#include "ir/op.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace kvopt {
namespace {

constexpr int64_t toFloat = static_cast<int64_t>(ElementType::Float);
constexpr int64_t toInt64 = static_cast<int64_t>(ElementType::Int64);
constexpr int64_t toBool = static_cast<int64_t>(ElementType::Bool);

class DecoderBuilder {
public:
  DecoderBuilder(Model& built, const SyntheticDecoder& decoder)
      : model(built), graph(&built.graph()), options(decoder),
        isScript(decoder.spelling == Spelling::TorchScript), hidden(options.heads * options.width) {
  }

  void build() {
    model.opsets[""] = 17;
    model.irVersion = 8;
    model.producerName = isScript ? "pytorch" : "pytorch_dynamo";
    graph->setName("main_graph");
    addInputs();
    std::vector<std::string> names{"logits"};
    for (unsigned layer = 0; layer < options.layers; ++layer)
      for (const char* role : {"key", "value"})
        names.push_back(fmt::format("present.{}.{}", layer, role));
    if (options.merged)
      addBranches(names);
    else
      addDecoder(names, true);
  }

private:
  /// The decoder in the current graph, with its outputs.
  void addDecoder(llvm::ArrayRef<std::string> names, bool hasPast) {
    nextWeight = 0;
    presents.clear();
    Value* x = &op("Gather", {&weight({options.vocabulary, hidden}), tokens});
    addLengths(*x, hasPast);
    addMask();
    addRotation();
    for (unsigned layer = 0; layer < options.layers; ++layer)
      x = &addLayer(*x, layer, hasPast);
    Value& logits = op("MatMul", {&norm(*x), &weight({hidden, options.vocabulary})});
    output(logits, names.front(),
           {*Dim::parse("batch"), *Dim::parse("sequence"), Dim::fixed(options.vocabulary)});
    for (size_t i = 0; i < presents.size(); ++i)
      output(*presents[i], names[i + 1],
             {Dim::symbol("batch"), Dim::fixed(options.groups),
              *Dim::parse(hasPast ? "past + sequence" : "sequence"), Dim::fixed(options.width)});
  }

  void addBranches(llvm::ArrayRef<std::string> names) {
    Graph& main = *graph;
    Value& flag = main.addInput("use_cache_branch", TensorType::fixed(ElementType::Bool, {1}));
    llvm::SmallVector<llvm::StringRef, 8> results(names.begin(), names.end());
    Node& choice = main.create(OpName("If"), {&flag}, results);
    for (bool hasPast : {false, true}) {
      std::vector<std::unique_ptr<Graph>> branch;
      branch.push_back(std::make_unique<Graph>(model.context(), model.opsets, &choice));
      graph = branch.back().get();
      graph->setName(hasPast ? "with_past" : "no_past");
      std::vector<std::string> inner;
      for (const std::string& name : names)
        inner.push_back(graph->name().str() + "/" + name);
      addDecoder(inner, hasPast);
      choice.setAttribute(hasPast ? "then_branch" : "else_branch",
                          Attribute::ofGraphs(std::move(branch), false));
    }
    graph = &main;
    for (Value& result : choice.results())
      main.addOutput(result);
  }

  Value& op(const char* type, std::initializer_list<Value*> operands) {
    return node(type, operands).result();
  }
  Value& op(const char* type, std::initializer_list<Value*> operands, const char* attribute,
            int64_t value) {
    Node& made = node(type, operands);
    made.setAttribute(attribute, Attribute::ofInt(value));
    return made.result();
  }
  Value& transpose(Value& x, std::vector<int64_t> permutation) {
    Node& made = node("Transpose", {&x});
    made.setAttribute("perm", Attribute::ofInts(std::move(permutation)));
    return made.result();
  }
  Node& node(const char* type, llvm::ArrayRef<Value*> operands) {
    std::string name = fmt::format("{}_{}", type, ++count);
    Node& made = graph->create(OpName(type), operands, {llvm::StringRef(name + "_output_0")});
    made.setName("/model/" + name);
    return made;
  }

  Value& constant(TensorRef data) {
    if (!isScript)
      return graph->addInitializer(fmt::format("val_{}", ++count), std::move(data));
    Node& made = node("Constant", {});
    made.setAttribute("value", Attribute::ofTensor(std::move(data)));
    return made.result();
  }
  Value& ints(std::initializer_list<int64_t> values) {
    return constant(int64Tensor(std::vector<int64_t>(values)));
  }
  Value& real(double value) { return constant(floatScalar(ElementType::Float, value)); }

  /// The next weight; both decoders of a merged one read the same.
  Value& weight(std::initializer_list<int64_t> shape) {
    if (nextWeight == weights.size())
      weights.push_back(&newWeight(shape));
    return *weights[nextWeight++];
  }
  Value& newWeight(std::initializer_list<int64_t> shape) {
    int64_t elements = 1;
    for (int64_t extent : shape)
      elements *= extent;
    std::vector<float> values(static_cast<size_t>(elements));
    for (float& value : values)
      value = static_cast<float>(static_cast<int>(++weightSeed * 37 % 101) - 50) / 200.0f;
    auto bytes = std::as_bytes(std::span(values));
    auto tensor =
        makeTensor(ElementType::Float, std::vector<int64_t>(shape), {bytes.begin(), bytes.end()});
    return model.graph().addInitializer(fmt::format("weight_{}", ++count),
                                        llvm::cantFail(std::move(tensor)));
  }

  void addInputs() {
    auto symbols = [](const char* a, const char* b) {
      return Shape{*Dim::parse(a), *Dim::parse(b)};
    };
    tokens = &graph->addInput("input_ids", {ElementType::Int64, symbols("batch", "sequence")});
    padding = &graph->addInput("attention_mask",
                               {ElementType::Int64, symbols("batch", "past + sequence")});
    positions =
        &graph->addInput("position_ids", {ElementType::Int64, symbols("batch", "sequence")});
    for (unsigned layer = 0; layer < options.layers; ++layer)
      for (const char* role : {"key", "value"})
        pasts.push_back(&graph->addInput(
            fmt::format("past_key_values.{}.{}", layer, role),
            {ElementType::Float, Shape{Dim::symbol("batch"), Dim::fixed(options.groups),
                                       Dim::symbol("past"), Dim::fixed(options.width)}}));
  }

  /// One extent of a tensor as a scalar (TorchScript) or as a list of one (dynamo).
  Value& extent(Value& tensor, int64_t axis) {
    if (isScript)
      return op("Gather", {&op("Shape", {&tensor}), &constant(int64Scalar(axis))}, "axis", 0);
    Node& shape = node("Shape", {&tensor});
    shape.setAttribute("start", Attribute::ofInt(axis));
    shape.setAttribute("end", Attribute::ofInt(axis + 1));
    return shape.result();
  }
  Value& listed(Value& length) {
    return isScript ? op("Unsqueeze", {&length, &ints({0})}) : length;
  }
  Value& scalarOf(Value& length) {
    return isScript ? length : op("Squeeze", {&length, &ints({0})});
  }

  void addLengths(Value& x, bool hasPast) {
    batch = &extent(*tokens, 0);
    sequence = &extent(x, 1);
    past = hasPast ? &extent(*pasts.front(), 2) : isScript ? &constant(int64Scalar(0)) : &ints({0});
    total = &op("Add", {past, sequence});
  }

  /// Additive [B,1,S,T]: 0 where key j <= past + query i and the token is no padding.
  void addMask() {
    Value& zero = constant(int64Scalar(0));
    Value& one = constant(int64Scalar(1));
    Value& keys = op("Range", {&zero, &scalarOf(*total), &one});
    Value& fresh = op("Range", {&zero, &scalarOf(*sequence), &one});
    Value& queries = op("Add", {&fresh, &scalarOf(*past)});
    Value& causal = op("LessOrEqual", {&op("Unsqueeze", {&keys, &ints({0, 1, 2})}),
                                       &op("Unsqueeze", {&queries, &ints({0, 1, 3})})});
    Value& visible = op("Unsqueeze", {&op("Cast", {padding}, "to", toBool), &ints({1, 2})});
    Value& both = op("And", {&causal, &visible});
    mask = &op("Where", {&both, &real(0.0), &real(std::numeric_limits<float>::lowest())});
  }

  /// cos and sin, [B,1,S,D].
  void addRotation() {
    std::vector<float> frequencies;
    for (int64_t i = 0; i < options.width / 2; ++i)
      frequencies.push_back(
          std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(options.width)));
    auto bytes = std::as_bytes(std::span(frequencies));
    Value& inverse = constant(llvm::cantFail(
        makeTensor(ElementType::Float, {1, options.width / 2, 1}, {bytes.begin(), bytes.end()})));
    Value& row = op("Cast", {&op("Unsqueeze", {positions, &ints({1})})}, "to", toFloat);
    Value& angles = transpose(op("MatMul", {&inverse, &row}), {0, 2, 1});
    Value& both = op("Concat", {&angles, &angles}, "axis", -1);
    cosine = &op("Unsqueeze", {&op("Cos", {&both}), &ints({1})});
    sine = &op("Unsqueeze", {&op("Sin", {&both}), &ints({1})});
  }

  Value& noopCast(Value& x) { return isScript ? op("Cast", {&x}, "to", toFloat) : x; }

  Value& norm(Value& x) {
    Value& wide = noopCast(x);
    Node& mean = node("ReduceMean", {&op("Pow", {&wide, &real(2.0)})});
    mean.setAttribute("axes", Attribute::ofInts({-1}));
    Value& root = op("Sqrt", {&op("Add", {&mean.result(), &real(1e-5)})});
    Value& inverse = isScript ? op("Div", {&real(1.0), &root}) : op("Reciprocal", {&root});
    Value& scaled = noopCast(op("Mul", {&wide, &inverse}));
    return op("Mul", {&weight({hidden}), &scaled});
  }

  /// [B,S,count*D] → [B,count,S,D].
  Value& splitHeads(Value& x, int64_t heads) {
    Value* first = batch;
    Value* second = sequence;
    if (isScript) {
      first = &extent(x, 0);
      second = &extent(x, 1);
    }
    Value& shape =
        op("Concat", {&listed(*first), &listed(*second), &ints({heads}), &ints({options.width})},
           "axis", 0);
    return transpose(op("Reshape", {&x, &shape}), {0, 2, 1, 3});
  }

  Value& rotated(Value& x) {
    Value* half = isScript ? nullptr : &ints({options.width / 2});
    if (isScript) {
      Value& width = extent(x, 3);
      Value& halved = op("Div", {&width, &constant(int64Scalar(2))});
      half = &listed(op("Cast", {&op("Cast", {&halved}, "to", toInt64)}, "to", toInt64));
    }
    Value& low = op("Slice", {&x, &ints({0}), half, &ints({3}), &ints({1})});
    Value& high = op(
        "Slice", {&x, half, &ints({std::numeric_limits<int64_t>::max()}), &ints({3}), &ints({1})});
    Value& turned = op("Concat", {&op("Neg", {&high}), &low}, "axis", -1);
    return op("Add", {&op("Mul", {&x, cosine}), &op("Mul", {&turned, sine})});
  }

  /// [B,G,T,D] → [B,H,T,D].
  Value& repeatedHeads(Value& cache) {
    int64_t repeats = options.heads / options.groups;
    Value& five = op("Unsqueeze", {&cache, &ints({2})});
    Value* first = batch;
    Value* length = total;
    if (isScript) {
      first = &extent(cache, 0);
      length = &extent(cache, 2);
    }
    Value& wide = op("Concat",
                     {&listed(*first), &ints({options.groups}), &ints({repeats}), &listed(*length),
                      &ints({options.width})},
                     "axis", 0);
    Value* target = &wide;
    if (isScript) {
      Value& ones = op("ConstantOfShape", {&op("Shape", {&wide})});
      ones.producer()->setAttribute("value", Attribute::ofTensor(int64Tensor({1})));
      Value& minus = op("Mul", {&ones, &constant(int64Scalar(-1))});
      target = &op("Where", {&op("Equal", {&wide, &minus}), &ones, &wide});
    }
    Value& expanded = op("Expand", {&five, target});
    Value& flat =
        op("Concat",
           {&listed(*first), &ints({options.heads}), &listed(*length), &ints({options.width})},
           "axis", 0);
    return op("Reshape", {&expanded, &flat});
  }

  Value& joined(Value* pastRows, Value& rows) {
    if (pastRows)
      return op("Concat", {pastRows, &rows}, "axis", -2);
    return isScript ? op("Concat", {&rows}, "axis", -2) : rows;
  }

  Value& addAttention(Value& x, unsigned layer, bool hasPast) {
    int64_t narrow = options.groups * options.width;
    Value& query = splitHeads(op("MatMul", {&x, &weight({hidden, hidden})}), options.heads);
    Value& key = splitHeads(op("MatMul", {&x, &weight({hidden, narrow})}), options.groups);
    Value& value = splitHeads(op("MatMul", {&x, &weight({hidden, narrow})}), options.groups);
    Value& turnedQuery = rotated(query);
    Value& turnedKey = rotated(key);
    Value& allKeys = joined(hasPast ? pasts[2 * layer] : nullptr, turnedKey);
    Value& allValues = joined(hasPast ? pasts[2 * layer + 1] : nullptr, value);
    presents.push_back(&allKeys);
    presents.push_back(&allValues);
    Value& keys = transpose(repeatedHeads(allKeys), {0, 1, 3, 2});
    Value& values = repeatedHeads(allValues);
    double scale = 1.0 / std::sqrt(static_cast<double>(options.width));
    Value& scores = op("Mul", {&op("MatMul", {&turnedQuery, &keys}), &real(scale)});
    Value& probabilities =
        noopCast(op("Softmax", {&noopCast(op("Add", {&scores, mask}))}, "axis", -1));
    Value& mixed = transpose(op("MatMul", {&probabilities, &values}), {0, 2, 1, 3});
    Value& shape = op("Concat", {&listed(*batch), &listed(*sequence), &ints({hidden})}, "axis", 0);
    return op("MatMul", {&op("Reshape", {&mixed, &shape}), &weight({hidden, hidden})});
  }

  Value& addLayer(Value& x, unsigned layer, bool hasPast) {
    Value& attended = op("Add", {&x, &addAttention(norm(x), layer, hasPast)});
    Value& y = norm(attended);
    Value& gate = op("MatMul", {&y, &weight({hidden, 2 * hidden})});
    Value& opened = op("Mul", {&gate, &op("Sigmoid", {&gate})});
    Value& inner = op("Mul", {&opened, &op("MatMul", {&y, &weight({hidden, 2 * hidden})})});
    return op("Add", {&attended, &op("MatMul", {&inner, &weight({2 * hidden, hidden})})});
  }

  void output(Value& value, const std::string& name, Shape shape) {
    value.setType({ElementType::Float, std::move(shape)});
    graph->rename(value, name);
    graph->addOutput(value);
  }

  Model& model;
  Graph* graph; ///< where nodes are added
  const SyntheticDecoder& options;
  bool isScript;
  int64_t hidden;
  unsigned count = 0;
  uint64_t weightSeed = 0;
  Value* tokens = nullptr;
  Value* padding = nullptr;
  Value* positions = nullptr;
  Value* batch = nullptr;
  Value* sequence = nullptr;
  Value* past = nullptr;
  Value* total = nullptr;
  Value* mask = nullptr;
  Value* cosine = nullptr;
  Value* sine = nullptr;
  std::vector<Value*> weights;
  size_t nextWeight = 0;
  std::vector<Value*> pasts;
  std::vector<Value*> presents;
};

} // namespace

std::unique_ptr<Model> syntheticDecoder(const OpRegistry& ops, const SyntheticDecoder& options) {
  assert(options.layers > 0 && options.heads % options.groups == 0 && options.width % 2 == 0);
  auto model = std::make_unique<Model>(ops);
  DecoderBuilder(*model, options).build();
  return model;
}

size_t nodeCount(Model& model) {
  size_t count = 0;
  forEachGraph(model.graph(), [&](Graph& graph) { count += graph.nodes().size(); });
  return count;
}

unsigned layersForNodes(const OpRegistry& ops, SyntheticDecoder options, size_t nodes) {
  options.layers = 1;
  size_t one = nodeCount(*syntheticDecoder(ops, options));
  options.layers = 2;
  size_t each = nodeCount(*syntheticDecoder(ops, options)) - one;
  return nodes <= one ? 1 : static_cast<unsigned>(1 + (nodes - one + each - 1) / each);
}

} // namespace kvopt
