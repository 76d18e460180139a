// Structural changes, and what changed models go through.
#include "tests/fuzz/structural_change.h"

#include "driver/verify/verification.h"
#include "ir/shapes/shape_inference.h"
#include "passes/pass_manager.h"
#include "passes/unrounding/narrowed_model.h"
#include "passes/unrounding/quantized_model.h"
#include "passes/unrounding/unrounded_codes.h"
#include "passes/unrounding/widened_model.h"
#include "tests/fuzz/exercise.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::fuzz {
using namespace ir;
using namespace runtime;
using namespace unrounding;

std::vector<Node*> ownNodes(Graph& graph) {
  std::vector<Node*> nodes;
  for (Node& node : graph.nodes())
    if (node.op().domain() == kvoptDomain || node.op().domain() == "com.microsoft")
      nodes.push_back(&node);
  return nodes;
}

void StructuralChange::make() {
  switch (choices.below(kinds)) {
  case 0:
    return dropOperand();
  case 1:
    return repeatOperand();
  case 2:
    return exchangeOperands();
  case 3:
    return readAnotherInput();
  case 4:
    return dropOutput();
  case 5:
    return exchangeOutputs();
  case 6:
    return readOutput();
  case 7:
    return changeAttribute();
  case 8:
    return dropResult();
  case 9:
    return changeBody();
  case 10:
    return dropImport();
  case 11:
    return changeCache();
  default:
    return changeNames();
  }
}

/// Mostly one of kvopt's or ONNX Runtime's operators.
Node* StructuralChange::anyNode(size_t fewestOperands) {
  std::vector<Node*> nodes = ownNodes(graph());
  if (nodes.empty() || choices.below(4) == 3) {
    nodes.clear();
    for (Node& node : graph().nodes())
      nodes.push_back(&node);
  }
  llvm::erase_if(nodes, [&](Node* node) { return node->operands().size() < fewestOperands; });
  return nodes.empty() ? nullptr : choices.of(nodes);
}

void StructuralChange::dropOperand() {
  if (Node* node = anyNode(1))
    node->setOperand(static_cast<unsigned>(choices.below(node->operands().size())), nullptr);
}

void StructuralChange::repeatOperand() {
  if (Node* node = anyNode(2)) {
    const auto from = static_cast<unsigned>(choices.below(node->operands().size()));
    const auto to = static_cast<unsigned>(choices.below(node->operands().size()));
    node->setOperand(to, node->operand(from));
  }
}

void StructuralChange::exchangeOperands() {
  if (Node* node = anyNode(2)) {
    const auto one = static_cast<unsigned>(choices.below(node->operands().size()));
    const auto other = static_cast<unsigned>(choices.below(node->operands().size()));
    Value* first = node->operand(one);
    node->setOperand(one, node->operand(other));
    node->setOperand(other, first);
  }
}

void StructuralChange::readAnotherInput() {
  Node* node = anyNode(1);
  if (node && !graph().inputs().empty())
    node->setOperand(static_cast<unsigned>(choices.below(node->operands().size())),
                     graph().inputs()[choices.below(graph().inputs().size())].get());
}

void StructuralChange::dropOutput() {
  if (graph().outputs().empty())
    return;
  // All of them, now and then.
  const bool dropsAll = choices.below(8) == 7;
  do
    graph().removeOutput(static_cast<unsigned>(choices.below(graph().outputs().size())));
  while (dropsAll && !graph().outputs().empty());
}

void StructuralChange::exchangeOutputs() {
  if (graph().outputs().size() < 2)
    return;
  Value& one = *graph().outputs()[choices.below(graph().outputs().size())];
  Value& other = *graph().outputs()[choices.below(graph().outputs().size())];
  if (&one == &other)
    return;
  const std::string nameOfOne = one.name().str(), nameOfOther = other.name().str();
  graph().rename(one, graph().freshName("exchanged"));
  graph().rename(other, nameOfOne);
  graph().rename(one, nameOfOther);
}

/// Another node reads what was an output, and gives it under its name.
void StructuralChange::readOutput() {
  if (graph().outputs().empty())
    return;
  const auto slot = static_cast<unsigned>(choices.below(graph().outputs().size()));
  Value& output = *graph().outputs()[slot];
  const std::string name = output.name().str();
  Node& reader = graph().createFresh("Neg", {&output}, 1);
  reader.result().setType(output.type());
  if (choices.below(2) == 0) {
    graph().addOutput(reader.result());
    return;
  }
  graph().setOutput(slot, reader.result());
  graph().rename(output, graph().freshName("read"));
  graph().rename(reader.result(), name);
}

void StructuralChange::changeAttribute() {
  Node* node = anyNode(0);
  if (!node || node->attributes().empty())
    return;
  const NamedAttribute& attribute = node->attributes()[choices.below(node->attributes().size())];
  const std::string name = attribute.name;
  const bool isInt = attribute.value.kind() == AttributeKind::Int && !attribute.value.isReference();
  constexpr int64_t numbers[] = {-1, 0, 1, 2, 3, 4, INT64_MAX, INT64_MIN};
  if (isInt && choices.below(2) == 0)
    node->setAttribute(name, Attribute::ofInt(choices.of(numbers)));
  else
    node->removeAttribute(name);
}

/// The number of results is fixed at creation: a node like it takes the place of the node.
void StructuralChange::dropResult() {
  Node* node = anyNode(0);
  if (!node || node->results().empty() || !node->subgraphs().empty())
    return;
  const size_t dropped = choices.below(node->results().size());
  if (!node->results()[dropped].isUnused())
    return;
  llvm::SmallVector<Value*, 8> operands;
  for (const Use& use : node->operands())
    operands.push_back(use.value());
  std::vector<std::string> names;
  for (size_t i = 0; i < node->results().size(); ++i)
    names.push_back(i == dropped ? "" : graph().freshName(formatted("like_{}", i)));
  llvm::SmallVector<llvm::StringRef, 8> refs(names.begin(), names.end());
  Node& like = graph().create(node->op(), operands, refs, node);
  for (const NamedAttribute& attribute : node->attributes())
    like.setAttribute(attribute.name, attribute.value.clone());
  for (unsigned i = 0; i < names.size(); ++i)
    if (i != dropped && !node->result(i).isAbsent()) {
      like.result(i).setType(node->result(i).type());
      node->result(i).replaceAllUsesWith(like.result(i));
    }
  graph().erase(*node);
}

void StructuralChange::changeBody() {
  if (model.functions.empty())
    return;
  Graph& body = model.functions[choices.below(model.functions.size())]->body;
  if (body.outputs().empty())
    return;
  const auto slot = static_cast<unsigned>(choices.below(body.outputs().size()));
  body.setOutput(slot, body.createFresh("Neg", {body.outputs()[slot]}, 1).result());
}

void StructuralChange::dropImport() { model.opsets.erase(kvoptDomain); }

void StructuralChange::changeCache() {
  if (manifest.caches.empty())
    return;
  ManifestCache& cache = manifest.caches[choices.below(manifest.caches.size())];
  ManifestCache& other = manifest.caches[choices.below(manifest.caches.size())];
  constexpr CacheRole roles[] = {CacheRole::Key,      CacheRole::Value,      CacheRole::Latent,
                                 CacheRole::KeyScale, CacheRole::ValueScale, CacheRole::LatentScale,
                                 CacheRole::State};
  constexpr CacheUpdate updates[] = {CacheUpdate::Grows,  CacheUpdate::Ring,
                                     CacheUpdate::Static, CacheUpdate::Blocks,
                                     CacheUpdate::State,  CacheUpdate::ReadOnly};
  constexpr ElementType elements[] = {ElementType::Float, ElementType::Int8, ElementType::UInt8,
                                      ElementType::Float16};
  switch (choices.below(12)) {
  case 0:
    manifest.caches.erase(manifest.caches.begin() + (&cache - manifest.caches.data()));
    return;
  case 1:
    manifest.caches.push_back(ManifestCache(cache));
    return;
  case 2:
    return std::swap(cache.past, other.past);
  case 3:
    return std::swap(cache.present, other.present);
  case 4:
    return std::swap(cache.storage, other.storage);
  case 5:
    cache.role = choices.of(roles);
    return;
  case 6:
    cache.layer = static_cast<int64_t>(choices.below(3));
    return;
  case 7:
    cache.storage = storageOf(choices.of(updates));
    return;
  case 8:
    cache.dtype = choices.of(elements);
    return;
  case 9:
    cache.exportedDtype = choices.of(elements);
    return;
  case 10:
    cache.storage = cache.isOneBuffer() ? storageOf(cache.update()) : inOneBuffer(cache.storage);
    return;
  default:
    if (auto* inBlocks = std::get_if<BlockCache>(&cache.storage);
        inBlocks && !inBlocks->inputs.empty())
      inBlocks->inputs[choices.below(inBlocks->inputs.size())] =
          inBlocks->inputs[choices.below(inBlocks->inputs.size())];
  }
}

void StructuralChange::changeNames() {
  std::vector<std::string> names{""};
  for (const std::unique_ptr<Value>& input : graph().inputs())
    names.push_back(input->name().str());
  const std::string name = choices.of(names);
  switch (choices.below(6)) {
  case 0:
    manifest.unpadded.push_back(name);
    return;
  case 1:
    manifest.reorder = name;
    return;
  case 2:
    if (!manifest.lengths.empty())
      manifest.lengths[choices.below(manifest.lengths.size())].input = name;
    return;
  case 3:
    manifest.lengths.clear();
    return;
  case 4:
    if (!manifest.lengths.empty())
      manifest.lengths.push_back(ManifestLength(manifest.lengths.front()));
    return;
  default:
    if (!manifest.inputs.empty())
      manifest.inputs[choices.below(manifest.inputs.size())].input = name;
  }
}

namespace {

/// A copy that may be changed; null, as a refusal, where the model cannot be written or read.
std::unique_ptr<Model> changeableCopy(const Model& model) {
  auto copy = driver::cloneModel(model, toolkit());
  if (!copy) {
    refused(copy.takeError());
    return nullptr;
  }
  if (llvm::Error error = inferShapes((*copy)->graph())) {
    refused(std::move(error));
    return nullptr;
  }
  return std::move(*copy);
}

/// Applies one transformation to a copy.
template <class Transform>
void transformed(const Model& model, Manifest manifest, Transform&& transform) {
  std::unique_ptr<Model> copy = changeableCopy(model);
  if (!copy)
    return;
  if (llvm::Error error = transform(*copy, manifest))
    refused(std::move(error));
}

llvm::Error lowered(Model& model, const char* pipeline) {
  passes::PassContext context(toolkit().rules, toolkit().targets);
  passes::PassManagerOptions options;
  options.verifyEach = false; // what is left is verified below: it may not be refused
  passes::PassManager manager(toolkit().passes, options);
  mustHold(manager.addPipeline(pipeline), "the pipeline");
  if (llvm::Error error = manager.run(model, context))
    return error;
  mustHold(ir::verify(model), pipeline);
  return llvm::Error::success();
}

} // namespace

bool exerciseChanged(const Model& changed, const Manifest& manifest) {
  auto bytes = exportModelBytes(changed);
  if (!bytes) {
    refused(bytes.takeError());
    return false;
  }
  auto opened = importModelBytes(asBytes(*bytes), "", toolkit().ops, limits);
  if (!opened) {
    refused(opened.takeError());
    return false;
  }
  Model& model = **opened;
  model.setMetadata(manifestKey, manifest.json());
  if (auto stored = manifestOf(model); !stored) {
    refused(stored.takeError());
    return false;
  }
  if (llvm::Error error = ir::verify(model)) {
    refused(std::move(error));
    return false;
  }
  for (const CodeForms& forms : {CodeForms{true, false}, CodeForms{false, true}}) {
    transformed(model, manifest, [&](Model& copy, Manifest& described) {
      return unquantize(copy, described, forms);
    });
    transformed(model, manifest, [&](Model& copy, Manifest&) {
      auto sites = addDefinitions(copy, forms);
      return sites ? llvm::Error::success() : sites.takeError();
    });
  }
  transformed(model, manifest, [](Model& copy, Manifest& described) {
    miswiredCaches(copy, described);
    return widenModel(copy, described);
  });
  transformed(model, manifest,
              [](Model& copy, Manifest& described) { return keepExportedRows(copy, described); });
  transformed(model, manifest,
              [](Model& copy, Manifest& described) { return keepUnroundedCodes(copy, described); });
  const std::string restored = formatted("restore-caches,{},", driver::recoveryPipeline);
  for (const char* target : {"onnx24", "kvopt", "ort-gqa"})
    transformed(model, manifest, [&](Model& copy, Manifest&) {
      return lowered(
          copy,
          formatted("{}lower{{to={} require=any}},eliminate-dead-nodes", restored, target).c_str());
    });
  return true;
}

} // namespace kvopt::fuzz
