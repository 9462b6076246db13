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

Tensor assembled_coo(const Tensor& like, const Counterpart& counterpart) {
  const auto indices = counterpart(coo(like)->indices());
  const auto values = counterpart(coo(like)->values());
  // The constructor allocates, and the device of what it allocates is the tensor's for good.
  const c10::OptionalDeviceGuard guard(values.device());
  const auto key = values.is_cpu() ? DispatchKey::SparseCPU : DispatchKey::SparsePrivateUse1;
  auto tensor =
      at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), like.dtype());
  set_coo(tensor, like, indices, values);
  return tensor;
}

void reassemble_coo(const Tensor& tensor, const Tensor& like, const Counterpart& counterpart) {
  const auto indices = counterpart(coo(like)->indices());
  const auto values = counterpart(coo(like)->values());
  const auto *before = coo(tensor), *after = coo(like);
  if (!indices.is_same(before->indices()) || !values.is_same(before->values()) ||
      tensor.sizes() != like.sizes() || before->coalesced() != after->coalesced() ||
      before->sparse_dim() != after->sparse_dim()) {
    set_coo(tensor, like, indices, values);
  }
}

Tensor assembled_compressed(const Tensor& like, const Counterpart& counterpart) {
  const auto* from = compressed(like);
  const auto outer = counterpart(from->compressed_indices());
  const auto inner = counterpart(from->plain_indices());
  const auto values = counterpart(from->values());
  const c10::OptionalDeviceGuard guard(values.device());
  const auto key = values.is_cpu() ? DispatchKey::SparseCsrCPU : DispatchKey::SparseCsrPrivateUse1;
  auto tensor = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      c10::DispatchKeySet(key), values.device(), like.layout(), like.dtype());
  compressed(tensor)->set_member_tensors(outer, inner, values, like.sizes());
  return tensor;
}

void reassemble_compressed(
    const Tensor& tensor, const Tensor& like, const Counterpart& counterpart) {
  const auto *before = compressed(tensor), *after = compressed(like);
  const auto outer = counterpart(after->compressed_indices());
  const auto inner = counterpart(after->plain_indices());
  const auto values = counterpart(after->values());
  if (!outer.is_same(before->compressed_indices()) || !inner.is_same(before->plain_indices()) ||
      !values.is_same(before->values()) || tensor.sizes() != like.sizes() ||
      tensor.layout() != like.layout()) {
    compressed(tensor)->set_layout(like.layout());
    compressed(tensor)->set_member_tensors(outer, inner, values, like.sizes());
  }
}

// Its sizes and strides are CPU tensors on every device.
Tensor assembled_nested(const Tensor& like, const Counterpart& counterpart) {
  auto* from = at::native::get_nested_tensor_impl(like);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      counterpart(from->get_unsafe_storage_as_tensor()), from->get_nested_sizes(),
      from->get_nested_strides(), from->get_storage_offsets());
}

}  // namespace

bool has_parts(const Tensor& tensor) {
  return tensor.is_sparse() || tensor.is_nested() || at::sparse_csr::is_sparse_compressed(tensor);
}

Tensor assembled(const Tensor& like, const Counterpart& counterpart) {
  if (like.is_sparse()) {
    return assembled_coo(like, counterpart);
  }
  return like.is_nested() ? assembled_nested(like, counterpart)
                          : assembled_compressed(like, counterpart);
}

void reassemble(const Tensor& tensor, const Tensor& like, const Counterpart& counterpart) {
  if (like.is_sparse()) {
    reassemble_coo(tensor, like, counterpart);
  } else if (!like.is_nested()) {  // of which no operator changes the shape
    reassemble_compressed(tensor, like, counterpart);
  }
}

}  // namespace sim
