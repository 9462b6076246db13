#include "host_views.h"

#include "layouts.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>

namespace sim {
namespace {

using c10::DispatchKey;
using c10::Storage;
using c10::StorageImpl;
using c10::TensorImpl;

void release_storage(void* context) {
  delete static_cast<Storage*>(context);
}

// Returns a CPU storage that shares the memory of a sim storage and keeps it alive.
Storage host_storage(const Storage& storage) {
  auto* owner = new Storage(storage);
  void* data = const_cast<void*>(storage.data());
  return Storage(
      Storage::use_byte_size_t(), storage.nbytes(),
      c10::DataPtr(data, owner, &release_storage, c10::Device(c10::kCPU)), c10::GetCPUAllocator(),
      /*resizable=*/true);
}

// Returns a strided tensor with the metadata of `like` and another storage.
at::Tensor view_like(const at::Tensor& like, Storage storage, DispatchKey key) {
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

bool is_strided(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_nested();
}

}  // namespace

at::Tensor host_view(const at::Tensor& tensor) {
  return is_sim(tensor) ? view_like(tensor, host_storage(tensor.storage()), DispatchKey::CPU)
                        : tensor;
}

at::Tensor memory_sharing_view(const at::Tensor& tensor) {
  const auto& storage = tensor.storage();
  auto bytes = share_memory(storage.data_ptr());
  if (!bytes) {
    return {};
  }
  return view_like(
      tensor,
      Storage(
          Storage::use_byte_size_t(), storage.nbytes(), std::move(bytes), c10::GetCPUAllocator(),
          /*resizable=*/false),
      DispatchKey::CPU);
}

void HostViews::check_supported(const at::Tensor& tensor) const {
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_strided(tensor) || has_member_tensors(tensor), operator_,
      " is not implemented for the sim device: it has no ",
      tensor.is_quantized() ? "quantized" : "MKL-DNN", " tensors");
}

at::Tensor HostViews::to_host(const at::Tensor& tensor) {
  if (!is_sim(tensor)) {
    return tensor;
  }
  const auto entry = host_of_.find(tensor.unsafeGetTensorImpl());
  if (entry != host_of_.end()) {
    return entry->second;
  }
  auto host = has_member_tensors(tensor)
      ? assemble(tensor, [this](const at::Tensor& part) { return to_host(part); })
      : view_like(tensor, to_host(tensor.storage()), DispatchKey::CPU);
  host_of_.emplace(tensor.unsafeGetTensorImpl(), host);
  device_of_.emplace(host.unsafeGetTensorImpl(), tensor);
  arguments_.push_back({tensor, host});
  return host;
}

Storage HostViews::to_host(const Storage& storage) {
  auto& host = host_storage_of_[storage.unsafeGetStorageImpl()];
  if (!host) {
    host = host_storage(storage);
    add_storage(host, storage);
  }
  return host;
}

void HostViews::add_storage(const Storage& host, const Storage& device) {
  storages_[host.unsafeGetStorageImpl()] = {device, host.data_ptr().get_context(), host};
}

void HostViews::update_arguments() {
  for (const auto& pair : arguments_) {
    has_member_tensors(pair.device) ? update_members(pair) : update_strided(pair);
  }
}

void HostViews::update_strided(const Pair& pair) {
  const auto& [device, host] = pair;
  auto* impl = device.unsafeGetTensorImpl();
  auto storage = to_device(host.storage(), /*adoptable=*/true);
  if (!storage.is_alias_of(device.storage())) {
    impl->set_storage_keep_dtype(std::move(storage));
  }
  if (host.sizes() != device.sizes() || host.strides() != device.strides() ||
      host.storage_offset() != device.storage_offset()) {
    impl->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
  }
  impl->_set_conj(host.is_conj());
  impl->_set_neg(host.is_neg());
}

void HostViews::update_members(const Pair& pair) {
  update(
      pair.device, pair.host, [this](const at::Tensor& part) { return to_device(part); });
}

void HostViews::count_owner(const at::Tensor& result) {
  if (result.defined() && result.has_storage() &&
      counted_.insert(result.unsafeGetTensorImpl()).second) {
    ++owners_[result.storage().unsafeGetStorageImpl()];
  }
}

bool HostViews::is_sole_owner(const at::Tensor& host) const {
  const auto owners = owners_.find(host.storage().unsafeGetStorageImpl());
  return owners != owners_.end() && host.storage().use_count() <= owners->second &&
      host.use_count() == 1;
}

at::Tensor HostViews::to_device(const at::Tensor& result) {
  if (!result.defined()) {
    return result;
  }
  const auto entry = device_of_.find(result.unsafeGetTensorImpl());
  if (entry != device_of_.end()) {
    return entry->second;
  }
  check_supported(result);
  auto tensor = has_member_tensors(result)
      ? assemble(result, [this](const at::Tensor& part) { return to_device(part); })
      : view_like(result, to_device(result.storage(), is_sole_owner(result)),
                  DispatchKey::PrivateUse1);
  device_of_.emplace(result.unsafeGetTensorImpl(), tensor);
  results_.push_back(result);
  return tensor;
}

Storage HostViews::to_device(const Storage& host, bool adoptable) {
  auto* impl = host.unsafeGetStorageImpl();
  const auto entry = storages_.find(impl);
  if (entry != storages_.end()) {
    adopt_resized(impl, entry->second.device);
    return entry->second.device;
  }
  const auto nbytes = host.nbytes();
  Storage storage(
      Storage::use_byte_size_t(), nbytes, memory_to_device(impl, adoptable), allocator(),
      /*resizable=*/true);
  add_storage(host, storage);
  return storage;
}

// Adopts the memory of a host storage if the CPU kernel has reallocated it.
void HostViews::adopt_resized(StorageImpl* host, const Storage& storage) {
  auto& entry = storages_[host];
  if (host->data_ptr().get_context() == entry.memory) {
    return;
  }
  const auto nbytes = host->nbytes();
  auto* impl = storage.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(memory_to_device(host, /*adoptable=*/true));
  impl->set_nbytes(nbytes);
  entry.memory = host->data_ptr().get_context();
}

c10::DataPtr HostViews::memory_to_device(StorageImpl* host, bool adoptable) const {
  const auto nbytes = host->nbytes();
  if (adoptable && nbytes > 0 &&
      host->data_ptr().get_deleter() == c10::GetCPUAllocator()->raw_deleter()) {
    auto memory = host->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
    return adopt_host_memory(std::move(memory), nbytes, device_->index());
  }
  auto memory = allocate_on(device_->index(), nbytes);
  if (nbytes > 0) {
    std::memcpy(memory.get(), host->data(), nbytes);
  }
  return memory;
}

}  // namespace sim
