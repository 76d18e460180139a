// A formula is rebuilt bottom up. What is made is remembered with the facts that it relied on.
#include "meaning/expression/formulas.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::meaning {

/// A node whose parts are being made.
struct Substitution::Frame {
  Expr expr;
  Facts::Path path = 0;             ///< under which the node is made
  Facts::Path inner = 0;            ///< under which the part is made that is next
  Expr index;                       ///< in the place of the one that it binds
  llvm::SmallVector<Expr, 4> parts; ///< that are made
  llvm::SmallVector<Expr, 4> open;  ///< those of the node, with `index`
};

std::optional<Expr> Substitution::known(Expr expr) const {
  if (auto by = by_.find(expr.id()); by != by_.end())
    return by->second;
  auto made = made_.find({expr.id(), formulas_.path()});
  return made == made_.end() ? std::nullopt : std::optional(made->second);
}

/// Adds a frame for the next part. False if all are made.
bool Substitution::advance(Frame& frame, std::vector<Frame>& frames) {
  const Op op = formulas_.arena()[frame.expr].op;
  while (frame.parts.size() < frame.open.size()) {
    const size_t next = frame.parts.size();
    frame.inner = frame.path;
    {
      Formulas::Branch branch(formulas_, frame.path);
      if (op == Op::Select && next > 0) {
        // A part that is not chosen is not made.
        if (std::optional<bool> truth = formulas_.booleanOf(frame.parts[0]);
            truth && *truth != (next == 1)) {
          frame.parts.push_back(frame.open[next]);
          continue;
        }
        Formulas::Branch inner(formulas_, frame.parts[0], next == 1);
        frame.inner = formulas_.path();
      } else if (frame.index && (next == 1 || next == 2)) {
        if (frame.index == frame.expr) {
          // Its extent is known now.
          frame.index = formulas_.index("k", frame.parts[0]);
          frame.open[1] = formulas_.opened(frame.expr, 1, frame.index);
          if (op == Op::Last)
            frame.open[2] = formulas_.opened(frame.expr, 2, frame.index);
        }
        Formulas::Branch inner(
            formulas_, formulas_.nonNegative(formulas_.add(frame.parts[0], formulas_.integer(-1))));
        frame.inner = formulas_.path();
      }
    }
    Formulas::Branch branch(formulas_, frame.inner);
    if (std::optional<Expr> made = known(frame.open[next])) {
      frame.parts.push_back(*made);
      continue;
    }
    Frame part;
    part.expr = frame.open[next];
    part.path = frame.inner;
    const Node& node = formulas_.arena()[part.expr];
    llvm::append_range(part.open, formulas_.arena().operands(part.expr));
    if (node.op == Op::Index)
      part.open.clear();
    if (node.op == Op::Reduce || node.op == Op::Last)
      part.index = part.expr;
    frames.push_back(std::move(part));
    return true;
  }
  return false;
}

Expr Substitution::finish(Frame& frame) {
  const Node node = formulas_.arena()[frame.expr];
  Formulas::Branch branch(formulas_, frame.path);
  llvm::ArrayRef<Expr> parts = frame.parts;
  if (node.op == Op::Reduce)
    return formulas_.closed(static_cast<Reduction>(node.detail), frame.index, parts[0], parts[1]);
  if (node.op == Op::Last)
    return formulas_.closedLast(frame.index, parts[0], parts[2], parts[1], parts[3]);
  if (node.op == Op::Element && elements_)
    return elements_(node.value, node.sort, parts);
  if (parts.empty())
    return frame.expr;
  return formulas_.remade(frame.expr, parts);
}

Expr Substitution::operator()(Expr expr) {
  if (std::optional<Expr> made = known(expr))
    return *made;
  // A node around the formula has it as its only part.
  std::vector<Frame> frames(1);
  frames[0].path = formulas_.path();
  frames[0].open.push_back(expr);
  while (true) {
    Frame& top = frames.back();
    if (advance(top, frames))
      continue;
    if (frames.size() == 1)
      return top.parts[0];
    Frame done = std::move(frames.back());
    frames.pop_back();
    const Expr made = finish(done);
    made_[{done.expr.id(), done.path}] = made;
  }
}

} // namespace kvopt::meaning
