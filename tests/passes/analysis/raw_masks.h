// Masks in graphs as exporters wrote them: what is added to, or selects, the scores of a softmax.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/mask/mask_predicate.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt {

/// The masks of one softmax, each of which stands for itself.
struct RawMasks {
  const ir::Node* softmax = nullptr;
  analysis::IndexSpace space;
  llvm::SmallVector<const ir::Value*, 2> masks;
};

/// Whether a product of two computed matrices is behind `value`.
inline bool holdsScores(const ir::Value& value) {
  llvm::SmallVector<const ir::Value*, 32> queue{&value};
  llvm::DenseSet<const ir::Value*> seen{&value};
  for (size_t next = 0; next < queue.size() && next < 200; ++next) {
    const ir::Node* node = queue[next]->producer();
    if (!node || node->op() == "Shape" || node->op() == "Range")
      continue;
    if (node->op() == "MatMul" || node->op() == "Einsum" || node->op() == "Gemm")
      return true;
    for (const ir::Use& use : node->operands())
      if (use.value() && seen.insert(use.value()).second)
        queue.push_back(use.value());
  }
  return false;
}

inline RawMasks rawMasksOf(const ir::Node& softmax) {
  RawMasks found{&softmax, analysis::IndexSpace({}, {}, {}, {}), {}};
  const ir::Value* scores = softmax.operand(0);
  auto takeSpace = [&](const ir::TensorType& type) {
    if (type.hasRank() && type.rank() == 4 && found.space.past().isUnknown())
      found.space = analysis::IndexSpace(type.dim(0), type.dim(1), type.dim(2), type.dim(3));
  };
  for (unsigned step = 0; step < 12 && scores; ++step) {
    takeSpace(scores->type());
    const ir::Node* node = scores->producer();
    if (!node || node->op() == "MatMul")
      break;
    const ir::Value* next = node->operand(0);
    if (node->op() == "Add") {
      bool isFirst = holdsScores(*node->operand(0));
      found.masks.push_back(node->operand(isFirst ? 1 : 0));
      next = node->operand(isFirst ? 0 : 1);
    } else if (node->op() == "Where") {
      bool isKept = holdsScores(*node->operand(1));
      if (isKept)
        found.masks.push_back(node->operand(0));
      next = node->operand(isKept ? 1 : 2);
    } else if (node->op() == "Mul" && !holdsScores(*next)) {
      next = node->operand(1);
    }
    scores = next;
  }
  return found;
}

} // namespace kvopt
