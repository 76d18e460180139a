// Changes to the structure of a model and of its manifest that keep the file well formed: what a
// rewritten model never looks like, and a hostile file may.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "tests/fuzz/choices.h"

#include <string>
#include <vector>

namespace kvopt::fuzz {

/// Makes changes that are chosen by bytes: operands that are dropped, given twice or exchanged,
/// outputs that are dropped, exchanged or read by other nodes, attributes and results that are left
/// out, function bodies that compute something else, and entries of the manifest that are dropped,
/// repeated, exchanged or contradict each other.
class StructuralChange {
public:
  StructuralChange(ir::Model& changedModel, ir::Manifest& changedManifest, Choices& madeChoices)
      : model(changedModel), manifest(changedManifest), choices(madeChoices) {}

  /// The number of kinds: the first choice of make().
  static constexpr size_t kinds = 13;
  /// Makes one change. Does nothing where the model has nothing to change in that way.
  void make();

private:
  ir::Graph& graph() const { return model.graph(); }
  ir::Node* anyNode(size_t fewestOperands);
  void dropOperand();
  void repeatOperand();
  void exchangeOperands();
  void readAnotherInput();
  void dropOutput();
  void exchangeOutputs();
  void readOutput();
  void changeAttribute();
  void dropResult();
  void changeBody();
  void dropImport();
  void changeCache();
  void changeNames();

  ir::Model& model;
  ir::Manifest& manifest;
  Choices& choices;
};

/// The nodes of the main graph that are operators of kvopt or of ONNX Runtime.
std::vector<ir::Node*> ownNodes(ir::Graph& graph);

/// Opens the model as if it had been written with that manifest, and applies everything to it that
/// takes models apart or writes them in another form. Each step either fails with a message or
/// leaves a model that the verifier accepts; anything else ends the process. Returns whether the
/// model was opened.
bool exerciseChanged(const ir::Model& model, const ir::Manifest& manifest);

} // namespace kvopt::fuzz
