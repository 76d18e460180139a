// Decoders of random and of plain spellings.
#include "tests/generated/generated_decoder.h"

#include "ir/shapes/shape_inference.h"
#include "tests/generated/spellings.h"

namespace kvopt::generated {
using namespace ir;

namespace {

driver::DecoderSpec specOf(const DecoderRecipe& recipe) {
  Dice dice(recipe.seed + 0x5eed);
  driver::DecoderSpec spec;
  spec.seed = recipe.seed;
  spec.spelling = driver::DecoderSpelling::Dynamo;
  spec.opset = 18;
  if (llvm::is_contained(recipe.preferred, "write/TensorScatter"))
    spec.opset = 24;
  if (recipe.rareSpellings == 0)
    return spec;
  spec.opset = dice.anyOf<int64_t>({18, 21, 24});
  if (dice.oneIn(2))
    spec.spelling = driver::DecoderSpelling::TorchScript;
  return spec;
}

class DecoderBuilder {
public:
  DecoderBuilder(Model& model, const driver::DecoderSpec& spec, const DecoderRecipe& recipe)
      : g(model, spec, recipe) {}

  void build() {
    g.changedLayer = g.dice.below(g.sizes.windows.size());
    addInputs();
    const CacheForm form(g);
    std::vector<std::vector<Value*>> pasts;
    for (size_t layer = 0; layer < g.sizes.windows.size(); ++layer)
      pasts.push_back(form.addPasts(g, layer));
    addLengths(*pasts.front().front(), form.axes());
    Value* x = &embedded();
    const Rotation rotation = rotationOf(g);
    std::vector<Value*> presents;
    for (g.layer = 0; g.layer < g.sizes.windows.size(); ++g.layer)
      x = &layerOf(*x, form, rotation, pasts[g.layer], presents);
    Value& table = g.weight("scores", {hiddenSize, vocabularySize}, 0.5);
    addOutputs(g.op("MatMul", {x, &table}), presents);
  }

  DecoderGraph g;

private:
  void addInputs() {
    const Dim batch = Dim::symbol("B");
    const Dim sequence = Dim::symbol("S");
    const Dim keys = g.sizes.isStatic ? Dim::fixed(cacheCapacity) : Dim::symbol("T");
    const auto input = [&](const char* name, Shape shape) {
      return &g.graph().addInput(name, {ElementType::Int64, std::move(shape)});
    };
    g.tokens = input("input_ids", {batch, sequence});
    if (g.sizes.hasPadding)
      g.padding = input("attention_mask", {batch, keys});
    if (g.sizes.takesPositions)
      g.positionIds = input("position_ids", {batch, sequence});
    if (g.sizes.isStatic)
      g.queryRows = input("cache_position", {sequence});
  }

  void addLengths(Value& past, const CacheAxes& axes) {
    g.zero = &g.ints({0});
    g.batch = &g.extentOf(*g.tokens, 0);
    g.sequence = &g.extentOf(*g.tokens, 1);
    if (g.sizes.isStatic) {
      g.first = &g.op("Gather", {g.queryRows, g.zero});
      g.total = &g.ints({cacheCapacity});
    } else {
      g.first = &g.extentOf(past, axes.rows);
      g.total = &g.add(*g.first, *g.sequence);
      g.queryRows = &g.range(*g.first, *g.total);
    }
    g.keyRows = &g.range(*g.zero, *g.total);
  }

  Value& embedded() {
    Value& table = g.weight("tokens", {vocabularySize, hiddenSize}, 1);
    Value& rows = g.op("Gather", {&table, g.tokens});
    if (g.sizes.positions != Positions::Learned)
      return rows;
    Value& places = g.weight("positions", {positionRows, hiddenSize}, 0.5);
    return g.add(rows, g.op("Gather", {&places, g.positionIds ? g.positionIds : g.queryRows}));
  }

  Value& layerOf(Value& x, const CacheForm& form, const Rotation& rotation,
                 llvm::ArrayRef<Value*> pasts, std::vector<Value*>& presents) {
    NewRows rows = projected(g, g.op("Tanh", {&x}));
    Value& query = g.transpose(rotated(g, *rows.query, rotation), {0, 2, 1, 3});
    rows.key = &rotated(g, *rows.key, rotation);
    const JoinedRows joined = form.updated(g, rows, pasts, presents);
    return g.add(x, mergedHeads(g, attended(g, query, joined)));
  }

  void addOutputs(Value& logits, llvm::ArrayRef<Value*> presents) {
    g.graph().rename(logits, "logits");
    g.graph().addOutput(logits);
    for (size_t index = 0; index < presents.size(); ++index) {
      Value& named = g.op("Identity", {presents[index]});
      g.graph().rename(named, "present." + std::to_string(index));
      g.graph().addOutput(named);
    }
    g.graph().eraseDeadNodes();
  }
};

bool isOf(llvm::StringRef spelling, llvm::StringRef part) {
  return spelling.split('/').first == part;
}

} // namespace

DecoderRecipe randomRecipe(uint64_t seed, const NearMiss* nearMiss) {
  Dice dice(seed * 0x9E3779B97F4A7C15);
  DecoderRecipe recipe;
  recipe.seed = seed;
  recipe.nearMiss = nearMiss;
  recipe.rareSpellings = dice.anyOf<uint64_t>({4, 12, 40, 100});
  DecoderSizes& sizes = recipe.sizes;
  sizes.groups = dice.anyOf<int64_t>({1, 2, 2, 4});
  sizes.width = dice.anyOf<int64_t>({4, 6, 8});
  sizes.windows.assign(1 + dice.below(2), 0);
  if (dice.oneIn(3))
    for (int64_t& window : sizes.windows)
      window = dice.anyOf<int64_t>({0, 3, 4, 5, 6});
  sizes.isStatic = dice.oneIn(3);
  sizes.hasPadding = dice.oneIn(3);
  sizes.positions = dice.anyOf({Positions::None, Positions::Learned, Positions::Rotary});
  sizes.takesPositions = dice.oneIn(2);
  return recipe;
}

DecoderRecipe plainRecipe(std::vector<std::string> spellings) {
  DecoderRecipe recipe;
  recipe.sizes.width = 6; // its root is not exact, which some rules depend on
  for (llvm::StringRef name : spellings) {
    recipe.sizes.isStatic |= isOf(name, "write");
    if (name == "repeat/None")
      recipe.sizes.groups = recipe.sizes.heads;
    recipe.sizes.takesPositions |= name == "seen/PositionIds";
    if (isOf(name, "window") || isOf(name, "both"))
      recipe.sizes.windows = {4};
    if (isOf(name, "angles") || isOf(name, "rotation"))
      recipe.sizes.positions = Positions::Rotary;
  }
  recipe.preferred = std::move(spellings);
  return recipe;
}

GeneratedDecoder generatedDecoder(const DecoderRecipe& recipe, const OpRegistry& ops) {
  GeneratedDecoder decoder;
  decoder.model = std::make_unique<Model>(ops);
  const driver::DecoderSpec spec = specOf(recipe);
  decoder.model->opsets[""] = spec.opset;
  decoder.model->irVersion = spec.opset >= 24 ? 11 : spec.opset >= 21 ? 10 : 8;
  DecoderBuilder builder(*decoder.model, spec, recipe);
  builder.build();
  llvm::cantFail(inferShapes(decoder.model->graph()));
  decoder.sizes = recipe.sizes;
  decoder.spellings = builder.g.used;
  if (builder.g.isChanged)
    decoder.nearMiss = recipe.nearMiss;
  return decoder;
}

} // namespace kvopt::generated
