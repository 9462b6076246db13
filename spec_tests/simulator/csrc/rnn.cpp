// Operators that PyTorch calls on accelerators but not on the CPU: fused cells and dropout.
//
// `H` is the hidden size. Gates have shape (batch, 4H) in the LSTM and (batch, 3H) in the GRU.

#include "sim.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace sim {
namespace {

using at::Tensor;
using std::optional;
using std::tuple;

Tensor add_bias(const Tensor& gates, const optional<Tensor>& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

Tensor grad_or_zeros(const optional<Tensor>& grad, const Tensor& like) {
  return grad && grad->defined() ? *grad : at::zeros_like(like);
}

Tensor sigmoid_grad(const Tensor& grad, const Tensor& output) {
  return grad * output * (1 - output);
}

Tensor tanh_grad(const Tensor& grad, const Tensor& output) {
  return grad * (1 - output * output);
}

Tensor bias_grad(const Tensor& grad, bool has_bias) {
  return has_bias ? grad.sum(0) : Tensor();
}

// The workspace stores the activated gates in the order input, forget, cell, output.
tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
    const optional<Tensor>& input_bias, const optional<Tensor>& hidden_bias) {
  const auto gates =
      (add_bias(input_gates, input_bias) + add_bias(hidden_gates, hidden_bias)).chunk(4, 1);
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
  const auto grad_h = grad_or_zeros(grad_hy, cx);
  const auto tanh_cy = cy.tanh();
  const auto grad_c = grad_or_zeros(grad_cy, cx) + tanh_grad(grad_h * out, tanh_cy);
  const auto grad_gates = at::cat(
      {sigmoid_grad(grad_c * cell, in), sigmoid_grad(grad_c * cx, forget),
       tanh_grad(grad_c * in, cell), sigmoid_grad(grad_h * tanh_cy, out)},
      1);
  return {grad_gates, grad_c * forget, bias_grad(grad_gates, has_bias)};
}

// The workspace stores the reset, update and new gates, the previous hidden state, and the hidden
// part of the new gate.
tuple<Tensor, Tensor> gru_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
    const optional<Tensor>& input_bias, const optional<Tensor>& hidden_bias) {
  const auto from_input = add_bias(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = add_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto reset = (from_input[0] + from_hidden[0]).sigmoid();
  const auto update = (from_input[1] + from_hidden[1]).sigmoid();
  const auto new_gate = (from_input[2] + reset * from_hidden[2]).tanh();
  return {
      new_gate + update * (hx - new_gate),
      at::cat({reset, update, new_gate, hx, from_hidden[2]}, 1)};
}

tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad, const Tensor& workspace, bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const auto &reset = saved[0], &update = saved[1], &new_gate = saved[2], &hx = saved[3];
  const auto grad_update = sigmoid_grad(grad * (hx - new_gate), update);
  const auto grad_new = tanh_grad(grad * (1 - update), new_gate);
  const auto grad_reset = sigmoid_grad(grad_new * saved[4], reset);
  const auto to_input = at::cat({grad_reset, grad_update, grad_new}, 1);
  const auto to_hidden = at::cat({grad_reset, grad_update, grad_new * reset}, 1);
  return {
      to_input, to_hidden, grad * update, bias_grad(to_input, has_bias),
      bias_grad(to_hidden, has_bias)};
}

// Draws from the generator of the device. PyTorch's CPU kernel would draw from the CPU's generator.
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
