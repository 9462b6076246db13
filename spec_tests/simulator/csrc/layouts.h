// Tensors that consist of member tensors: sparse COO, compressed sparse, nested.

#pragma once

#include <ATen/core/TensorBody.h>

#include <functional>

namespace sim {

// Maps a member tensor to the corresponding tensor on the host or on the device.
using MapTensor = std::function<at::Tensor(const at::Tensor&)>;

bool has_member_tensors(const at::Tensor& tensor);

// Returns a tensor with the layout and shape of `like` and the mapped member tensors of `like`.
at::Tensor assemble(const at::Tensor& like, const MapTensor& map_tensor);

// Sets the shape of `tensor` to the shape of `like`, and its member tensors to the mapped member
// tensors of `like`.
void update(const at::Tensor& tensor, const at::Tensor& like, const MapTensor& map_tensor);

}  // namespace sim
