// Operators that PyTorch asks of accelerators and never of the CPU: fused cells and dropout.
//
// Letters: `H` is the hidden size; gates are (batch, 4H) for the LSTM and (batch, 3H) for the GRU.

#include "sim.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace sim {
namespace {

using at::Tensor;
using std::optional;
using std::tuple;

Tensor with_bias(const Tensor& gates, const optional<Tensor>& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

Tensor or_zeros(const optional<Tensor>& grad, const Tensor& like) {
  return grad && grad->defined() ? *grad : at::zeros_like(like);
}

Tensor through_sigmoid(const Tensor& grad, const Tensor& output) {
  return grad * output * (1 - output);
}

Tensor through_tanh(const Tensor& grad, const Tensor& output) {
  return grad * (1 - output * output);
}

Tensor sum_of_batch(const Tensor& grad, bool has_bias) {
  return has_bias ? grad.sum(0) : Tensor();
}

// The workspace keeps the activated gates, in the order of the gates: in, forget, cell, out.
tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
    const optional<Tensor>& input_bias, const optional<Tensor>& hidden_bias) {
  const auto gates =
      (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const auto in = gates[0].sigmoid();
  const auto forget = gates[1].sigmoid();
  const auto cell = gates[2].tanh();
  const auto out = gates[3].sigmoid();
  const auto cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const optional<Tensor>& grad_hy, const optional<Tensor>& grad_cy, const Tensor& cx,
    const Tensor& cy, const Tensor& workspace, bool has_bias) {
  const auto gates = workspace.chunk(4, 1);
  const auto &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const auto hy = or_zeros(grad_hy, cx);
  const auto squashed = cy.tanh();
  const auto c = or_zeros(grad_cy, cx) + through_tanh(hy * out, squashed);
  const auto grad_gates = at::cat(
      {through_sigmoid(c * cell, in), through_sigmoid(c * cx, forget), through_tanh(c * in, cell),
       through_sigmoid(hy * squashed, out)},
      1);
  return {grad_gates, c * forget, sum_of_batch(grad_gates, has_bias)};
}

// The workspace keeps reset, update and new gate, the old state, and the new gate's hidden part.
tuple<Tensor, Tensor> gru_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
    const optional<Tensor>& input_bias, const optional<Tensor>& hidden_bias) {
  const auto from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto reset = (from_input[0] + from_hidden[0]).sigmoid();
  const auto update = (from_input[1] + from_hidden[1]).sigmoid();
  const auto fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  return {
      fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
}

tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad, const Tensor& workspace, bool has_bias) {
  const auto kept = workspace.chunk(5, 1);
  const auto &reset = kept[0], &update = kept[1], &fresh = kept[2], &hx = kept[3];
  const auto grad_update = through_sigmoid(grad * (hx - fresh), update);
  const auto grad_fresh = through_tanh(grad * (1 - update), fresh);
  const auto grad_reset = through_sigmoid(grad_fresh * kept[4], reset);
  const auto to_input = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  const auto to_hidden = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  return {
      to_input, to_hidden, grad * update, sum_of_batch(to_input, has_bias),
      sum_of_batch(to_hidden, has_bias)};
}

// The CPU's own kernel would draw from the CPU's generator.
tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, optional<bool> train) {
  if (!train.value_or(true)) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  const auto mask = at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - p);
  return {input * mask * (p == 1 ? 0. : 1 / (1 - p)), mask};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
  m.impl("native_dropout", &native_dropout);
}

}  // namespace sim
