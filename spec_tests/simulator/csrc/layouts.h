// Tensors that are made of other tensors: sparse COO, compressed sparse, nested.

#pragma once

#include <ATen/core/TensorBody.h>

#include <functional>

namespace sim {

// What takes the place of a part: the same tensor on the other side, host or device.
using Counterpart = std::function<at::Tensor(const at::Tensor&)>;

bool has_parts(const at::Tensor& tensor);

// A tensor of the kind and shape of `like`, on the device of the counterparts of its parts.
at::Tensor assembled(const at::Tensor& like, const Counterpart& counterpart);

// Gives `tensor` the shape and the counterparts of the parts that `like` has by now.
void reassemble(const at::Tensor& tensor, const at::Tensor& like, const Counterpart& counterpart);

}  // namespace sim
