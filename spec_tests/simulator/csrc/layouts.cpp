#include "layouts.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/DeviceGuard.h>

namespace sim {
namespace {

using at::Tensor;
using c10::DispatchKey;

at::SparseTensorImpl* coo(const Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl* compressed(const Tensor& tensor) {
  return at::sparse_csr::get_sparse_csr_impl(tensor);
}

void set_coo(
    const Tensor& tensor, const Tensor& like, const Tensor& indices, const Tensor& values) {
  coo(tensor)->raw_resize_(coo(like)->sparse_dim(), coo(like)->dense_dim(), like.sizes());
  coo(tensor)->set_indices_and_values_unsafe(indices, values);
  coo(tensor)->set_coalesced(coo(like)->coalesced());
}

Tensor assemble_coo(const Tensor& like, const MapTensor& map_tensor) {
  const auto indices = map_tensor(coo(like)->indices());
  const auto values = map_tensor(coo(like)->values());
  // The constructor allocates on the current device, which becomes the device of the tensor.
  const c10::OptionalDeviceGuard guard(values.device());
  const auto key = values.is_cpu() ? DispatchKey::SparseCPU : DispatchKey::SparsePrivateUse1;
  auto tensor =
      at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), like.dtype());
  set_coo(tensor, like, indices, values);
  return tensor;
}

void update_coo(const Tensor& tensor, const Tensor& like, const MapTensor& map_tensor) {
  const auto indices = map_tensor(coo(like)->indices());
  const auto values = map_tensor(coo(like)->values());
  const auto *before = coo(tensor), *after = coo(like);
  if (!indices.is_same(before->indices()) || !values.is_same(before->values()) ||
      tensor.sizes() != like.sizes() || before->coalesced() != after->coalesced() ||
      before->sparse_dim() != after->sparse_dim()) {
    set_coo(tensor, like, indices, values);
  }
}

Tensor assemble_compressed(const Tensor& like, const MapTensor& map_tensor) {
  const auto* from = compressed(like);
  const auto outer = map_tensor(from->compressed_indices());
  const auto inner = map_tensor(from->plain_indices());
  const auto values = map_tensor(from->values());
  const c10::OptionalDeviceGuard guard(values.device());
  const auto key = values.is_cpu() ? DispatchKey::SparseCsrCPU : DispatchKey::SparseCsrPrivateUse1;
  auto tensor = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      c10::DispatchKeySet(key), values.device(), like.layout(), like.dtype());
  compressed(tensor)->set_member_tensors(outer, inner, values, like.sizes());
  return tensor;
}

void update_compressed(
    const Tensor& tensor, const Tensor& like, const MapTensor& map_tensor) {
  const auto *before = compressed(tensor), *after = compressed(like);
  const auto outer = map_tensor(after->compressed_indices());
  const auto inner = map_tensor(after->plain_indices());
  const auto values = map_tensor(after->values());
  if (!outer.is_same(before->compressed_indices()) || !inner.is_same(before->plain_indices()) ||
      !values.is_same(before->values()) || tensor.sizes() != like.sizes() ||
      tensor.layout() != like.layout()) {
    compressed(tensor)->set_layout(like.layout());
    compressed(tensor)->set_member_tensors(outer, inner, values, like.sizes());
  }
}

// The sizes and strides of a nested tensor are CPU tensors on every device.
Tensor assemble_nested(const Tensor& like, const MapTensor& map_tensor) {
  auto* from = at::native::get_nested_tensor_impl(like);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      map_tensor(from->get_unsafe_storage_as_tensor()), from->get_nested_sizes(),
      from->get_nested_strides(), from->get_storage_offsets());
}

}  // namespace

bool has_member_tensors(const Tensor& tensor) {
  return tensor.is_sparse() || tensor.is_nested() || at::sparse_csr::is_sparse_compressed(tensor);
}

Tensor assemble(const Tensor& like, const MapTensor& map_tensor) {
  if (like.is_sparse()) {
    return assemble_coo(like, map_tensor);
  }
  return like.is_nested() ? assemble_nested(like, map_tensor)
                          : assemble_compressed(like, map_tensor);
}

void update(const Tensor& tensor, const Tensor& like, const MapTensor& map_tensor) {
  if (like.is_sparse()) {
    update_coo(tensor, like, map_tensor);
  } else if (!like.is_nested()) {  // no operator changes the shape of a nested tensor
    update_compressed(tensor, like, map_tensor);
  }
}

}  // namespace sim
