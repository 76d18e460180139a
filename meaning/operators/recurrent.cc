// Recurrences over sequences of known length, one step after the other.
#include "meaning/definitions.h"

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;

Scalar logistic(Scalar x) { return 1.0 / (1.0 + apply(Function::Exponential, -x)); }
Scalar hyperbolic(Scalar x) { return apply(Function::HyperbolicTangent, x); }

/// The operands of one direction of RNN, GRU and LSTM, with `gates` gates.
struct Recurrence {
  Tensor input;              ///< [length, batch, width]
  Tensor weights, recurrent; ///< [directions, gates*hidden, width or hidden]
  Tensor bias;               ///< [directions, 2*gates*hidden], or none
  int64_t gates = 1, direction = 0;
  Scalar batch, hidden, width;

  /// Gate k of the input and, if there is one, of the state, with their biases.
  Scalar fromInput(int64_t gate, Scalar row, Scalar column, Scalar step) const {
    const Scalar place = column + static_cast<double>(gate) * hidden;
    const Scalar which = column.integer(direction);
    const Scalar all = sum(width, [&](Scalar k) {
      return input.at({step, row, k}) * weights.at({which, place, k});
    });
    return bias ? all + bias.at({which, place}) : all;
  }
  Scalar fromState(int64_t gate, Scalar row, Scalar column, const Tensor& state) const {
    const Scalar place = column + static_cast<double>(gate) * hidden;
    const Scalar which = column.integer(direction);
    const Scalar all = sum(hidden, [&](Scalar k) {
      return state.at({row, k}) * recurrent.at({which, place, k});
    });
    return bias ? all + bias.at({which, place + static_cast<double>(gates) * hidden}) : all;
  }
};

/// What a step makes of the hidden state and of the state of cells.
using Step = std::function<void(const Recurrence&, Scalar step, Tensor& hidden, Tensor& cells)>;

/// Runs a step for each element of the sequence in each direction. Only the usual activations, and
/// no lengths of single sequences.
void recur(Call& call, int64_t gates, const Step& next) {
  call.ignoreAttributes({"hidden_size"}); // that of the weights
  const bool isBatchFirst = call.integerAttribute("layout", 0) != 0;
  const llvm::StringRef direction = call.textAttribute("direction", "forward");
  if (call.hasAttribute("activations") || call.hasAttribute("clip"))
    return call.refuse("activations other than the usual ones are not defined");
  if (call.integerAttribute("input_forget", 0) != 0)
    return call.refuse("coupled gates are not defined");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return call.refuse("the direction is not one of ONNX's");
  if (call.has(4))
    return call.refuse("lengths of single sequences are not defined");
  const Tensor input = isBatchFirst ? transposed(call[0], {1, 0, 2}) : call[0];
  const std::optional<int64_t> length = input.extent(0).number(),
                               directions = call[1].extent(0).number();
  if (!length || !directions || *length > 512)
    return call.refuse("the length of the sequence is not known, or large");
  const Scalar zero = call.integer(0);
  Recurrence parts;
  parts.input = input;
  parts.weights = call[1];
  parts.recurrent = call[2];
  parts.bias = call.has(3) ? call[3] : Tensor();
  parts.gates = gates;
  parts.batch = input.extent(1);
  parts.width = input.extent(2);
  parts.hidden = call[2].extent(2);
  const Type type = input.type();
  auto initial = [&](unsigned operand, int64_t which) {
    const Tensor given = call.has(operand) ? call[operand] : Tensor();
    return Tensor({parts.batch, parts.hidden}, type, [=](Index index) {
      const Scalar place = zero.integer(which);
      if (!given)
        return zero.real(0);
      return given.at(isBatchFirst ? Scalars{index[0], place, index[1]}
                                   : Scalars{place, index[0], index[1]});
    });
  };
  std::vector<std::vector<Tensor>> states(static_cast<size_t>(*directions));
  std::vector<Tensor> lastHidden, lastCells;
  for (int64_t which = 0; which < *directions; ++which) {
    parts.direction = which;
    const bool isReverse = direction == "reverse" || which == 1;
    Tensor hidden = initial(5, which), cells = initial(6, which);
    auto& all = states[static_cast<size_t>(which)];
    all.resize(static_cast<size_t>(*length));
    for (int64_t k = 0; k < *length; ++k) {
      const int64_t step = isReverse ? *length - 1 - k : k;
      next(parts, zero.integer(step), hidden, cells);
      all[static_cast<size_t>(step)] = hidden;
    }
    lastHidden.push_back(hidden);
    lastCells.push_back(cells);
  }
  const Scalars order = {call.integer(*length), call.integer(*directions), parts.batch,
                         parts.hidden};
  auto chosen = [=](const auto& list, Scalar place, auto use) {
    Scalar value = use(list.back());
    for (size_t k = list.size() - 1; k-- > 0;)
      value = select(same(place, static_cast<double>(k)), use(list[k]), value);
    return value;
  };
  const Tensor sequence(order, type, [=](Index index) {
    return chosen(states, index[1], [&](const std::vector<Tensor>& steps) {
      return chosen(steps, index[0], [&](const Tensor& state) {
        return state.at({index[2], index[3]});
      });
    });
  });
  auto ends = [&](const std::vector<Tensor>& list) {
    return Tensor({order[1], order[2], order[3]}, type, [=](Index index) {
      return chosen(list, index[0], [&](const Tensor& state) {
        return state.at({index[1], index[2]});
      });
    });
  };
  const Tensor hidden = ends(lastHidden), cells = ends(lastCells);
  call.result(0, isBatchFirst ? transposed(sequence, {2, 0, 1, 3}) : sequence);
  call.result(1, isBatchFirst ? transposed(hidden, {1, 0, 2}) : hidden);
  call.result(2, isBatchFirst ? transposed(cells, {1, 0, 2}) : cells);
}

Tensor stateOf(Call& call, const Recurrence& parts, std::function<Scalar(Scalar, Scalar)> f) {
  return call.named(Tensor({parts.batch, parts.hidden}, parts.input.type(),
                           [=](Index index) { return f(index[0], index[1]); }));
}

void defineRnn(Call& call) {
  recur(call, 1, [&](const Recurrence& parts, Scalar step, Tensor& hidden, Tensor&) {
    const Tensor old = hidden;
    hidden = stateOf(call, parts, [=](Scalar row, Scalar column) {
      return hyperbolic(parts.fromInput(0, row, column, step) +
                        parts.fromState(0, row, column, old));
    });
  });
}
/// Gates: update z, reset r, and the hidden one, which reads r*h or, with `linear_before_reset`, r
/// times the product.
void defineGru(Call& call) {
  const bool isLinear = call.integerAttribute("linear_before_reset", 0) != 0;
  recur(call, 3, [&](const Recurrence& parts, Scalar step, Tensor& hidden, Tensor&) {
    const Tensor old = hidden;
    auto gate = [&](int64_t which) {
      return stateOf(call, parts, [=](Scalar row, Scalar column) {
        return logistic(parts.fromInput(which, row, column, step) +
                        parts.fromState(which, row, column, old));
      });
    };
    const Tensor update = gate(0), reset = gate(1);
    const Tensor kept(listed(old.extents()), old.type(),
                      [=](Index index) { return reset.at(index) * old.at(index); });
    hidden = stateOf(call, parts, [=](Scalar row, Scalar column) {
      const Scalar state = isLinear ? reset.at({row, column}) * parts.fromState(2, row, column, old)
                                    : parts.fromState(2, row, column, kept);
      const Scalar fresh = hyperbolic(parts.fromInput(2, row, column, step) + state);
      const Scalar z = update.at({row, column});
      return (1.0 - z) * fresh + z * old.at({row, column});
    });
  });
}
/// Gates: input, output, forget, cell; peepholes see the cells.
void defineLstm(Call& call) {
  const Tensor peepholes = call.has(7) ? call[7] : Tensor();
  recur(call, 4, [&](const Recurrence& parts, Scalar step, Tensor& hidden, Tensor& cells) {
    const Tensor oldHidden = hidden, oldCells = cells;
    auto before = [=](int64_t gate, Scalar row, Scalar column) {
      return parts.fromInput(gate, row, column, step) +
             parts.fromState(gate, row, column, oldHidden);
    };
    auto seen = [=](int64_t place, Scalar row, Scalar column, const Tensor& state) {
      if (!peepholes)
        return column.real(0);
      return peepholes.at({column.integer(parts.direction),
                           column + static_cast<double>(place) * parts.hidden}) *
             state.at({row, column});
    };
    const Tensor newCells = stateOf(call, parts, [=](Scalar row, Scalar column) {
      const Scalar input = logistic(before(0, row, column) + seen(0, row, column, oldCells)),
                   forget = logistic(before(2, row, column) + seen(2, row, column, oldCells)),
                   cell = hyperbolic(before(3, row, column));
      return forget * oldCells.at({row, column}) + input * cell;
    });
    hidden = stateOf(call, parts, [=](Scalar row, Scalar column) {
      const Scalar output = logistic(before(1, row, column) + seen(1, row, column, newCells));
      return output * hyperbolic(newCells.at({row, column}));
    });
    cells = newCells;
  });
}

} // namespace

void register_recurrent(Definitions& all) {
  all.add("RNN", defineRnn);
  all.add("GRU", defineGru);
  all.add("LSTM", defineLstm);
}

} // namespace kvopt::meaning
