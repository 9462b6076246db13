// Every operator without a kernel of its own: the CPU's kernel, run over the same memory.
//
//   1. find the one device that the arguments are on, or refuse
//   2. replace each sim tensor by a CPU tensor over its memory: a host view
//   3. run the CPU kernel
//   4. pass on what it did to sizes, strides and storages of its arguments
//   5. turn its results into sim tensors: an argument, an alias of one, or new memory

#include "sim.h"

#include <ATen/SparseTensorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>
#include <unordered_map>
#include <unordered_set>

namespace sim {
namespace {

using c10::DispatchKey;
using c10::IValue;
using c10::StorageImpl;
using c10::TensorImpl;
using torch::jit::Stack;

bool is_sim(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kSim;
}

at::SparseTensorImpl* sparse_impl(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

void release_storage(void* context) {
  delete static_cast<c10::Storage*>(context);
}

// A CPU storage over the memory of a sim storage, which it keeps alive.
c10::Storage host_storage(const c10::Storage& storage) {
  auto* keep = new c10::Storage(storage);
  void* data = const_cast<void*>(storage.data());
  return c10::Storage(
      c10::Storage::use_byte_size_t(), storage.nbytes(),
      c10::DataPtr(data, keep, &release_storage, c10::Device(c10::kCPU)), c10::GetCPUAllocator(),
      /*resizable=*/true);
}

// A strided tensor with the metadata of `like`, over another storage of another device.
at::Tensor same_view(const at::Tensor& like, c10::Storage storage, DispatchKey key) {
  auto tensor = at::detail::make_tensor<TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) {
    impl->set_wrapped_number(true);
  }
  impl->_set_conj(like.is_conj());
  impl->_set_neg(like.is_neg());
  return tensor;
}

void check_supported(const at::Tensor& tensor, const c10::FunctionSchema& schema) {
  const bool strided = tensor.layout() == c10::kStrided && !tensor.is_quantized();
  const bool sparse = tensor.layout() == c10::kSparse;
  TORCH_CHECK_NOT_IMPLEMENTED(
      (strided || sparse) && !tensor.unsafeGetTensorImpl()->is_python_dispatch() &&
          !tensor.key_set().has(DispatchKey::NestedTensorCPU) &&
          !tensor.key_set().has(DispatchKey::NestedTensorPrivateUse1),
      schema.operator_name(), ": sim has no ", tensor.toString(), " tensors");
}

// One call of one operator.
class Call {
 public:
  Call(const c10::OperatorHandle& op, DispatchKey key) : op_(op), schema_(op.schema()), key_(key) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        (schema_.name().rfind("aten::", 0) == 0 || schema_.name().rfind("prims::", 0) == 0) &&
            op.hasComputedKernelForDispatchKey(key),
        schema_.operator_name(), " is not implemented for the sim device");
  }

  void run(Stack* stack) {
    const auto first = stack->size() - schema_.arguments().size();
    find_device(*stack, first);
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      auto& value = (*stack)[first + i];
      value = argument_to_host(value, schema_.arguments()[i]);
    }
    {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      c10::impl::ExcludeDispatchKeyGuard no_autocast(DispatchKey::AutocastCPU);
      op_.redispatchBoxed(c10::DispatchKeySet(key_), stack);
    }
    for (const auto& view : views_) {
      pass_on(view);
    }
    results_to_device(stack);
  }

 private:
  struct View {
    at::Tensor device;
    at::Tensor host;
  };

  // 1. The device of the call.

  void find_device(const Stack& stack, size_t first) {
    std::optional<c10::Device> requested;
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      const auto& value = stack[first + i];
      if (value.isDevice()) {
        requested = value.toDevice();
      }
      each_tensor(value, [&](const at::Tensor& tensor) { meet(tensor); });
    }
    if (requested && requested->type() == kSim) {
      device_ = with_index(*requested);
    }
    if (!device_) {
      device_ = c10::Device(kSim, current_device());
    }
    check_usable(device_->index());
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      const auto& argument = schema_.arguments()[i];
      const bool written = argument.alias_info() && argument.alias_info()->isWrite();
      each_tensor(stack[first + i], [&](const at::Tensor& tensor) {
        refuse_host(tensor, argument.name(), written);
      });
    }
  }

  template <typename F>
  static void each_tensor(const IValue& value, F&& visit) {
    if (value.isTensor()) {
      visit(value.toTensor());
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const IValue& item : value.toListRef()) {
        each_tensor(item, visit);
      }
    }
  }

  void meet(const at::Tensor& tensor) {
    if (!is_sim(tensor)) {
      return;
    }
    check_supported(tensor, schema_);
    TORCH_CHECK(
        !device_ || *device_ == tensor.device(),
        "Expected all tensors to be on the same device, but found at least two devices, ",
        *device_, " and ", tensor.device(), "! (operator ", schema_.operator_name(), ")");
    device_ = tensor.device();
  }

  void refuse_host(const at::Tensor& tensor, const std::string& name, bool written) const {
    if (!tensor.defined() || is_sim(tensor)) {
      return;
    }
    const bool index = name == "indices" && schema_.name().find("index") != std::string::npos;
    TORCH_CHECK(
        tensor.device().is_cpu() && !written && (tensor.dim() == 0 || index),
        "Expected all tensors to be on the same device, but found at least two devices, ",
        *device_, " and ", tensor.device(), "! (operator ", schema_.operator_name(),
        ", argument ", name, ")");
  }

  // 2. Arguments.

  IValue argument_to_host(const IValue& value, const c10::Argument& argument) {
    if (value.isTensor()) {
      return to_host(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorList()) {
        list.push_back(to_host(tensor));
      }
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        list.push_back(tensor ? std::optional<at::Tensor>(to_host(*tensor)) : std::nullopt);
      }
      return list;
    }
    if (value.isDevice()) {
      return c10::Device(c10::kCPU);
    }
    if (value.isGenerator()) {
      return generator_to_host(value.toGenerator());
    }
    if (value.isNone() && takes_generator(argument)) {
      return host_generator(default_generator(device_->index()));
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        !value.isStorage(), schema_.operator_name(), " is not implemented for the sim device");
    return value;
  }

  static bool takes_generator(const c10::Argument& argument) {
    const auto& type = argument.type();
    return type->kind() == c10::TypeKind::OptionalType &&
        type->castRaw<c10::OptionalType>()->getElementType()->kind() ==
        c10::TypeKind::GeneratorType;
  }

  at::Generator generator_to_host(const at::Generator& generator) const {
    TORCH_CHECK(
        generator.device() == *device_,
        "Expected a '", *device_, "' generator device but found '", generator.device(), "'");
    return host_generator(generator);
  }

  at::Tensor to_host(const at::Tensor& tensor) {
    if (!is_sim(tensor)) {
      return tensor;
    }
    auto& known = view_of_[tensor.unsafeGetTensorImpl()];
    if (known.defined()) {
      return known;
    }
    auto host = tensor.layout() == c10::kSparse ? sparse_to_host(tensor)
                                                : same_view(tensor, storage_to_host(tensor.storage()),
                                                            DispatchKey::CPU);
    view_of_[tensor.unsafeGetTensorImpl()] = host;
    argument_of_[host.unsafeGetTensorImpl()] = tensor;
    views_.push_back({tensor, host});
    return host;
  }

  at::Tensor sparse_to_host(const at::Tensor& tensor) {
    const auto* impl = sparse_impl(tensor);
    return make_sparse(
        tensor, to_host(impl->indices()), to_host(impl->values()), DispatchKey::SparseCPU);
  }

  static at::Tensor make_sparse(
      const at::Tensor& like, const at::Tensor& indices, const at::Tensor& values,
      DispatchKey key) {
    // The constructor allocates, and the device of what it allocates is the tensor's for good.
    const c10::OptionalDeviceGuard guard(values.device());
    auto tensor =
        at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), like.dtype());
    copy_sparse(like, indices, values, tensor);
    return tensor;
  }

  static void copy_sparse(
      const at::Tensor& like, const at::Tensor& indices, const at::Tensor& values,
      const at::Tensor& to) {
    const auto* from = sparse_impl(like);
    auto* impl = sparse_impl(to);
    impl->raw_resize_(from->sparse_dim(), from->dense_dim(), like.sizes());
    impl->set_indices_and_values_unsafe(indices, values);
    impl->set_coalesced(from->coalesced());
  }

  c10::Storage storage_to_host(const c10::Storage& storage) {
    auto& host = host_of_[storage.unsafeGetStorageImpl()];
    if (!host) {
      host = host_storage(storage);
      device_of_[host.unsafeGetStorageImpl()] = storage;
      start_of_[host.unsafeGetStorageImpl()] = host.data_ptr().get_context();
    }
    return host;
  }

  // 4. What became of the arguments.

  void pass_on(const View& view) {
    if (view.device.layout() == c10::kSparse) {
      pass_on_sparse(view);
      return;
    }
    auto storage = storage_to_device(view.host.storage(), /*mine=*/true);
    auto* impl = view.device.unsafeGetTensorImpl();
    if (!storage.is_alias_of(view.device.storage())) {
      impl->set_storage_keep_dtype(std::move(storage));
    }
    if (view.host.sizes() != view.device.sizes() || view.host.strides() != view.device.strides() ||
        view.host.storage_offset() != view.device.storage_offset()) {
      impl->set_sizes_and_strides(
          view.host.sizes(), view.host.strides(), view.host.storage_offset());
    }
    impl->_set_conj(view.host.is_conj());
    impl->_set_neg(view.host.is_neg());
  }

  void pass_on_sparse(const View& view) {
    const auto* host = sparse_impl(view.host);
    const auto indices = to_device(host->indices());
    const auto values = to_device(host->values());
    copy_sparse(view.host, indices, values, view.device);
  }

  // 5. Results.

  void results_to_device(Stack* stack) {
    const auto first = stack->size() - schema_.returns().size();
    for (size_t i = first; i < stack->size(); ++i) {
      each_tensor((*stack)[i], [&](const at::Tensor& tensor) { count_owner(tensor); });
    }
    for (size_t i = first; i < stack->size(); ++i) {
      (*stack)[i] = result_to_device((*stack)[i]);
    }
  }

  void count_owner(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.layout() != c10::kStrided || !tensor.has_storage()) {
      return;
    }
    if (seen_.insert(tensor.unsafeGetTensorImpl()).second) {
      ++owners_[tensor.storage().unsafeGetStorageImpl()];
    }
  }

  IValue result_to_device(const IValue& value) {
    if (value.isTensor()) {
      return to_device(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorList()) {
        list.push_back(to_device(tensor));
      }
      return list;
    }
    return value;
  }

  at::Tensor to_device(const at::Tensor& host) {
    if (!host.defined()) {
      return host;
    }
    const auto argument = argument_of_.find(host.unsafeGetTensorImpl());
    if (argument != argument_of_.end()) {
      return argument->second;
    }
    check_supported(host, schema_);
    at::Tensor tensor;
    if (host.layout() == c10::kSparse) {
      const auto* impl = sparse_impl(host);
      tensor = make_sparse(
          host, to_device(impl->indices()), to_device(impl->values()),
          DispatchKey::SparsePrivateUse1);
    } else {
      tensor = same_view(host, storage_to_device(host.storage(), is_ours(host)),
                         DispatchKey::PrivateUse1);
    }
    argument_of_[host.unsafeGetTensorImpl()] = tensor;
    kept_.push_back(host);
    return tensor;
  }

  // Nothing but the results of this call holds the memory.
  bool is_ours(const at::Tensor& host) const {
    const auto& storage = host.storage();
    const auto owners = owners_.find(storage.unsafeGetStorageImpl());
    return owners != owners_.end() && storage.use_count() <= owners->second &&
        host.use_count() == 1;
  }

  c10::Storage storage_to_device(const c10::Storage& host, bool mine) {
    auto* impl = host.unsafeGetStorageImpl();
    const auto known = device_of_.find(impl);
    if (known != device_of_.end()) {
      take_over_resized(impl, known->second);
      return known->second;
    }
    const auto nbytes = host.nbytes();
    c10::Storage storage(
        c10::Storage::use_byte_size_t(), nbytes, memory_to_device(impl, nbytes, mine), allocator(),
        /*resizable=*/true);
    device_of_[impl] = storage;
    start_of_[impl] = impl->data_ptr().get_context();
    return storage;
  }

  // The CPU kernel gave a storage new memory: the sim storage gets it too.
  void take_over_resized(StorageImpl* host, const c10::Storage& storage) {
    if (host->data_ptr().get_context() == start_of_[host] && host->nbytes() == storage.nbytes()) {
      return;
    }
    const auto nbytes = host->nbytes();
    auto memory = memory_to_device(host, nbytes, /*mine=*/true);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(memory));
    storage.unsafeGetStorageImpl()->set_nbytes(nbytes);
    start_of_[host] = host->data_ptr().get_context();
  }

  c10::DataPtr memory_to_device(StorageImpl* host, size_t nbytes, bool mine) const {
    const auto plain = c10::GetCPUAllocator()->raw_deleter();
    if (mine && nbytes > 0 && host->data_ptr().get_deleter() == plain) {
      auto taken = host->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
      return adopt(std::move(taken), nbytes, device_->index());
    }
    auto memory = allocate_on(device_->index(), nbytes);
    if (nbytes > 0) {
      std::memcpy(memory.get(), host->data(), nbytes);
    }
    return memory;
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  const DispatchKey key_;
  std::optional<c10::Device> device_;
  std::vector<View> views_;
  std::vector<at::Tensor> kept_;  // so that no address is used twice within the call
  std::unordered_map<TensorImpl*, at::Tensor> view_of_;  // sim tensor -> host view
  std::unordered_map<TensorImpl*, at::Tensor> argument_of_;  // host tensor -> sim tensor
  std::unordered_map<StorageImpl*, c10::Storage> host_of_;  // sim storage -> host storage
  std::unordered_map<StorageImpl*, c10::Storage> device_of_;  // host storage -> sim storage
  std::unordered_map<StorageImpl*, void*> start_of_;  // host storage -> owner of its memory
  std::unordered_map<StorageImpl*, size_t> owners_;  // host storage -> results over it
  std::unordered_set<TensorImpl*> seen_;
};

void run_on_host(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  Call(op, DispatchKey::CPU).run(stack);
}

void run_sparse_on_host(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  Call(op, DispatchKey::SparseCPU).run(stack);
}

}  // namespace

at::Tensor host_view(const at::Tensor& tensor) {
  return is_sim(tensor) ? same_view(tensor, host_storage(tensor.storage()), DispatchKey::CPU)
                        : tensor;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_sparse_on_host>());
}

// These have composite kernels as well, which ask for operators that only CUDA has, or round
// otherwise than the CPU's.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"convolution", "_convolution", "convolution_backward",
                           "native_layer_norm", "native_group_norm"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  }
}

}  // namespace sim
