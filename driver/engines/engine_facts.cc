// The rows of the table, and the requirements of models and forms.
#include "driver/engines/engine_facts.h"

#include "ir/op_name.h"
#include "ir/ops/contrib/group_query_operands.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ErrorHandling.h"

namespace kvopt::driver {
using namespace ir;

namespace {

constexpr EngineFact engineRows[] = {
    {EngineUse::GroupQueryAttention, "com.microsoft::GroupQueryAttention", "float32, float16",
     "1.23", true, ""},
    {EngineUse::QuantizedCaches, "com.microsoft::GroupQueryAttention, quantized caches",
     "int8, int4", "1.30", true,
     "ONNX Runtime 1.23 does not load GroupQueryAttention with quantized caches; 1.30 does."},
    {EngineUse::QueryKeyNorms, "com.microsoft::GroupQueryAttention, q_norm and k_norm",
     "float32, float16", "1.30", false,
     "ONNX Runtime 1.30 has q_norm and k_norm of GroupQueryAttention on CUDA and WebGPU; on the "
     "CPU, it refuses the first step."},
    {EngineUse::MultiHeadAttention, "com.microsoft::MultiHeadAttention", "float32", "1.23", true,
     ""},
    {EngineUse::PagedFloat32, "com.microsoft::PagedAttention", "float32", nullptr, false,
     "Only kvopt's runtime runs PagedAttention of float32: ONNX Runtime refuses to load the "
     "model."},
    {EngineUse::PagedFloat16, "com.microsoft::PagedAttention", "float16, bfloat16", "1.23", false,
     "ONNX Runtime runs PagedAttention on CUDA (on WebGPU in part), not on the CPU."},
    {EngineUse::Opset23, "Attention of opset 23", "float32, float16, bfloat16", "1.23", true, ""},
    {EngineUse::Opset24, "TensorScatter and Attention of opset 24", "float32, float16, bfloat16",
     "1.24", true, "Opset 24 needs ONNX Runtime 1.24: older versions do not load the model."},
    {EngineUse::OwnOperators, "ai.kvopt", "float32, float16, bfloat16, int8, int4", "1.23", false,
     "ONNX Runtime runs kvopt's operators by their function bodies, which is slower than the "
     "export, unless it loads libkvopt_onnxruntime.so (docs/drive.md)."},
    {EngineUse::Standard, "MatMul, Softmax", "float32, float16, bfloat16", "1.23", true, ""},
};

/// The requirement of a node; nullopt for operators of ONNX that every engine has.
std::optional<EngineUse> useOf(const Node& node) {
  if (node.op().domain() == kvoptDomain)
    return EngineUse::OwnOperators;
  if (node.op() == OpName("com.microsoft::GroupQueryAttention")) {
    if (node.operand(gqa::QueryNormWeight) || node.operand(gqa::KeyNormWeight))
      return EngineUse::QueryKeyNorms;
    return node.operand(gqa::KeyScale) ? EngineUse::QuantizedCaches
                                       : EngineUse::GroupQueryAttention;
  }
  if (node.op() == OpName("com.microsoft::MultiHeadAttention"))
    return EngineUse::MultiHeadAttention;
  if (node.op() == OpName("com.microsoft::PagedAttention"))
    return node.operand(0) && node.operand(0)->type().elementType() == ElementType::Float
               ? EngineUse::PagedFloat32
               : EngineUse::PagedFloat16;
  return std::nullopt;
}

/// The requirements of a form, as far as the form determines them.
std::vector<EngineUse> usesOf(const Form& form, bool isFloat32) {
  switch (form.engine) {
  case Engine::Ort:
    if (form.cache == CacheKind::Paged)
      return {isFloat32 ? EngineUse::PagedFloat32 : EngineUse::PagedFloat16};
    return {form.calibratedBits() != 0 ? EngineUse::QuantizedCaches
                                       : EngineUse::GroupQueryAttention};
  case Engine::Onnx:
    return {form.cache == CacheKind::Grow ? EngineUse::Opset23 : EngineUse::Opset24};
  case Engine::Kvopt:
    return {EngineUse::OwnOperators};
  case Engine::Primitive:
    return {EngineUse::Standard};
  }
  llvm_unreachable("unknown engine");
}

/// The advice that follows a note: the first other form without the limitation.
std::string adviceOn(EngineUse use, llvm::ArrayRef<Form> others) {
  const auto* other = llvm::find_if(
      others, [&](const Form& form) { return !llvm::is_contained(usesOf(form, true), use); });
  if (use == EngineUse::OwnOperators)
    return other == others.end()
               ? " Without the library, no other form is known to be faster than the export."
               : formatted(" Without the library: {}.", optionsOf(*other));
  if (use == EngineUse::Opset24 && other != others.end())
    return formatted(" They load {}.", optionsOf(*other));
  return "";
}

std::vector<std::string> notesOf(llvm::ArrayRef<EngineUse> uses) {
  std::vector<std::string> notes;
  for (EngineUse use : uses)
    if (const char* note = engineFact(use).note; *note != '\0')
      notes.emplace_back(note);
  return notes;
}

} // namespace

llvm::ArrayRef<EngineFact> engineFacts() { return engineRows; }

const EngineFact& engineFact(EngineUse use) {
  const EngineFact* found =
      llvm::find_if(engineRows, [&](const EngineFact& fact) { return fact.use == use; });
  assert(found != std::end(engineRows) && "every use has a row");
  return *found;
}

std::vector<EngineUse> engineUses(Graph& graph) {
  std::vector<bool> isUsed(std::size(engineRows));
  const auto note = [&](EngineUse use) { isUsed[static_cast<size_t>(use)] = true; };
  if (graph.opsetVersion() >= 24)
    note(EngineUse::Opset24);
  else if (graph.opsetVersion() == 23)
    note(EngineUse::Opset23);
  forEachGraph(graph, [&](Graph& part) {
    for (const Node& node : part.nodes())
      if (const std::optional<EngineUse> use = useOf(node))
        note(*use);
  });
  std::vector<EngineUse> uses;
  for (const EngineFact& fact : engineRows)
    if (isUsed[static_cast<size_t>(fact.use)])
      uses.push_back(fact.use);
  if (uses.empty())
    uses.push_back(EngineUse::Standard);
  return uses;
}

std::vector<std::string> engineNotes(const Form& form, bool isFloat32) {
  return notesOf(usesOf(form, isFloat32));
}

std::vector<std::string> engineNotes(Graph& graph, llvm::ArrayRef<Form> others) {
  std::vector<std::string> notes;
  for (EngineUse use : engineUses(graph))
    if (const char* note = engineFact(use).note; *note != '\0')
      notes.push_back(note + adviceOn(use, others));
  return notes;
}

const char* runnerOf(Engine engine) {
  switch (engine) {
  case Engine::Ort:
    return "ONNX Runtime";
  case Engine::Onnx:
    return "engines with ONNX's Attention";
  case Engine::Kvopt:
    return "kvopt's runtime";
  case Engine::Primitive:
    return "every ONNX engine";
  }
  llvm_unreachable("unknown engine");
}

std::string enginesText() {
  std::string text =
      formatted("{:<54} {:<40} {}\n", "operators", "caches of", "ONNX Runtime, from version");
  for (const EngineFact& fact : engineRows) {
    text += formatted("{:<54} {:<40} {}\n", fact.what, fact.types,
                      fact.ortVersion ? fact.ortVersion : "none");
    if (*fact.note != '\0')
      text += formatted("  {}\n", fact.note);
  }
  return text;
}

std::string enginesMarkdown() {
  std::string text = "| operators | caches of | ONNX Runtime, from version | note |\n"
                     "|---|---|---|---|\n";
  for (const EngineFact& fact : engineRows)
    text += formatted("| {} | {} | {} | {} |\n", fact.what, fact.types,
                      fact.ortVersion ? fact.ortVersion : "none", fact.note);
  return text;
}

} // namespace kvopt::driver
