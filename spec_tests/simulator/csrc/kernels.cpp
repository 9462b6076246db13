// Operators with sim kernels: allocation, copies between devices, views.

#include "faults.h"
#include "features.h"
#include "races.h"
#include "sim.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>

namespace sim {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::DeviceGuard device_guard(std::optional<c10::Device> device) {
  return c10::DeviceGuard(with_index(device.value_or(c10::Device(kSim))));
}

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(
      layout.value_or(c10::kStrided) == c10::kStrided, "aten::empty: sim has no ", *layout,
      " tensors of this kind");
}

// Fills the memory of a new tensor, so that a read of uninitialized memory does not return zeros.
at::Tensor poison(at::Tensor tensor) {
  const bool is_enabled = races::is_on() || faults::is_on("dirty-memory");
  if (is_enabled && tensor.storage().nbytes() > 0) {
    const auto type = tensor.scalar_type();
    const bool has_nan = c10::isFloatingType(type) || c10::isComplexType(type);
    const int pattern = has_nan ? 0xFF : type == c10::kBool ? 0x01 : 0xA5;
    std::memset(tensor.storage().mutable_data(), pattern, tensor.storage().nbytes());
    races::record_allocation(tensor.storage(), "aten::empty");
  }
  return tensor;
}

at::Tensor empty(
    c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin_memory,
    std::optional<c10::MemoryFormat> format) {
  check_options(layout, pin_memory);
  features::check_dtype(c10::dtype_or_default(dtype));
  const auto guard = device_guard(device);
  return poison(at::detail::empty_generic(
      size, allocator(), kKeys, c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<c10::Layout> layout, std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  features::check_dtype(c10::dtype_or_default(dtype));
  const auto guard = device_guard(device);
  return poison(at::detail::empty_strided_generic(
      size, stride, allocator(), kKeys, c10::dtype_or_default(dtype)));
}

at::Tensor zeros(
    c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return at::zeros(size, dtype, layout, device, pin_memory);
}

void check_both_usable(const at::Tensor& from, const at::Tensor& to) {
  for (const auto* tensor : {&from, &to}) {
    if (tensor->device().type() == kSim) {
      check_usable(tensor->device().index());
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(
          tensor->device().is_cpu(), "aten::copy_ between sim and ", tensor->device(),
          " is not implemented");
    }
  }
}

void apply_peer_faults(const at::Tensor& from, const at::Tensor& to) {
  const bool is_peer_copy = from.device() != to.device() && !from.is_cpu() && !to.is_cpu();
  const bool is_long = to.nbytes() >= 1 << 16;
  if (is_peer_copy &&
      (faults::is_on("garbled-peers") || (is_long && faults::is_on("garbled-long-peers")))) {
    host_view(to).zero_();
  }
  if (is_peer_copy && faults::is_on("device-left")) {
    force_current_device(to.device().index());
  }
}

// Returns the CPU tensor to copy from. Faults change it.
at::Tensor source_of(const at::Tensor& from, const at::Tensor& to) {
  auto source = host_view(from);
  const auto sizes = from.sizes();
  const bool has_one = std::find(sizes.begin(), sizes.end(), 1) != sizes.end();
  if (faults::is_on("strides-ignored") && has_one && !from.is_contiguous()) {
    return source.as_strided(sizes, c10::TensorType::contiguousStridesOf(sizes));
  }
  if (faults::is_on("conjugate-lost") && from.is_conj()) {
    return source.conj();
  }
  const bool is_truth = from.is_floating_point() && to.scalar_type() == at::kBool;
  return faults::is_on("truncated-bools") && is_truth ? source.to(at::kInt) : source;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  check_both_usable(from, to);
  if (!races::record_copy(from, to, non_blocking)) {
    host_view(to).copy_(source_of(from, to));
  }
  apply_peer_faults(from, to);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  check_usable(self.device().index());
  if (races::is_on()) {
    races::Step step("aten::_local_scalar_dense", self.device().index());
    step.reads(self);
    step.host_waits();
  }
  return host_view(self).item();
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      features::has(features::Feature::record_stream),
      "aten::record_stream is not implemented for the sim device");
  check_usable(self.device().index());
  TORCH_CHECK(
      stream.device_type() == kSim, "Expected a stream of a sim device, but got one of ",
      stream.device());
  if (self.layout() == c10::kStrided && !faults::is_on("no-record-stream")) {
    allocator()->recordStream(self.storage().data_ptr(), stream);
  }
}

// With this kernel, module.to() keeps the Parameter objects when it moves a module between CPU and
// sim, as it does between CPU and CUDA. Without the feature, module.to() creates new ones.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  if (!features::has(features::Feature::kept_parameters) || faults::is_on("new-parameters")) {
    return self.device().type() == from.device().type();
  }
  const auto is_dense = [](const at::Tensor& tensor) {
    return tensor.layout() == c10::kStrided && !tensor.is_quantized() &&
        (tensor.device().is_cpu() || tensor.device().type() == kSim);
  };
  return is_dense(self) && is_dense(from);
}

at::Tensor view_as_real(const at::Tensor& self) {
  return at::native::view_as_real(faults::is_on("copied-views") ? self.clone() : self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_efficientzerotensor", &zeros);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("record_stream", &record_stream);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("copy_", &at::native::copy_sparse_wrapper_);
  m.impl("copy_sparse_to_sparse_", &at::native::copy_sparse_);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("copy_", &at::native::copy_sparse_compressed_);
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("copy_", &at::native::copy_nested_);
  m.impl("_to_copy", &at::native::_to_copy_nested);
}

// `_copy_from` resolves lazy conjugation and negation itself. PyTorch's own kernels for these two
// keys resolve them with a copy, which would call `_copy_from` again, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace sim
