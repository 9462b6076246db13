// For one operator call: converts sim tensors to CPU tensors with the same memory, and back.

#pragma once

#include "sim.h"

#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace sim {

inline bool is_sim(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kSim;
}

// The tensors and storages of one operator call. Tensors that share memory on the device share it
// on the host and vice versa. Each tensor is converted once.
class HostViews {
 public:
  explicit HostViews(const std::string& operator_name) : operator_(operator_name) {}

  // Sets the device of the results that the operator allocates.
  void set_device(c10::Device device) {
    device_ = device;
  }

  // Raises NotImplementedError for quantized and MKL-DNN tensors.
  void check_supported(const at::Tensor& tensor) const;

  at::Tensor to_host(const at::Tensor& tensor);
  c10::Storage to_host(const c10::Storage& storage);

  // Copies sizes, strides and storages of the host views to the arguments.
  void update_arguments();

  // Counts a result as an owner of its storage. Call this for every result before the first call of
  // to_device(result): to_device adopts memory that only results own, and copies other memory.
  void count_owner(const at::Tensor& result);
  at::Tensor to_device(const at::Tensor& result);

 private:
  struct Pair {
    at::Tensor device;
    at::Tensor host;
  };

  void update_strided(const Pair& pair);
  void update_members(const Pair& pair);
  bool is_sole_owner(const at::Tensor& host) const;
  c10::Storage to_device(const c10::Storage& host, bool adoptable);
  void adopt_resized(c10::StorageImpl* host, const c10::Storage& storage);
  c10::DataPtr memory_to_device(c10::StorageImpl* host, bool adoptable) const;
  void add_storage(const c10::Storage& host, const c10::Storage& device);

  struct StorageEntry {
    c10::Storage device;
    void* memory;  // context of the host pointer; changes if the operator reallocates the memory
    c10::Storage host;  // keeps the map's key alive, so that its address is not reused
  };

  const std::string& operator_;
  std::optional<c10::Device> device_;
  std::vector<Pair> arguments_;
  std::vector<at::Tensor> results_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> host_of_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> device_of_;
  std::unordered_map<c10::StorageImpl*, c10::Storage> host_storage_of_;
  std::unordered_map<c10::StorageImpl*, StorageEntry> storages_;
  std::unordered_map<c10::StorageImpl*, size_t> owners_;
  std::unordered_set<c10::TensorImpl*> counted_;
};

}  // namespace sim
