// CPU tensors over the memory of sim tensors, and the way back, for the length of one call.

#pragma once

#include "sim.h"

#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace sim {

inline bool is_sim(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kSim;
}

// Tensors and storages of one call of one operator. Whatever shares memory on one side shares
// it on the other, and a tensor that is met twice is one tensor on the other side too.
class HostViews {
 public:
  explicit HostViews(const std::string& operator_name) : operator_(operator_name) {}

  // Results that were allocated by the call become memory of this device.
  void set_device(c10::Device device) {
    device_ = device;
  }

  // Raises NotImplementedError for tensors that are quantized or MKL-DNN's.
  void check_supported(const at::Tensor& tensor) const;

  at::Tensor to_host(const at::Tensor& tensor);
  c10::Storage to_host(const c10::Storage& storage);

  // Gives the arguments the sizes, strides and storages that their views now have.
  void update_arguments();

  // Call for every result before the first to_device: memory that only results hold is adopted,
  // other memory is copied.
  void count_owner(const at::Tensor& result);
  at::Tensor to_device(const at::Tensor& result);

 private:
  struct Pair {
    at::Tensor device;
    at::Tensor host;
  };

  void update_strided(const Pair& pair);
  void update_parts(const Pair& pair);
  bool is_sole_owner(const at::Tensor& host) const;
  c10::Storage to_device(const c10::Storage& host, bool adoptable);
  void take_over_resized(c10::StorageImpl* host, const c10::Storage& storage);
  c10::DataPtr memory_to_device(c10::StorageImpl* host, bool adoptable) const;
  void remember(const c10::Storage& host, const c10::Storage& device);

  struct Known {
    c10::Storage device;
    void* memory;  // context of the host pointer: another one means that it was reallocated
    c10::Storage host;  // kept, so that no address is used twice within the call
  };

  const std::string& operator_;
  std::optional<c10::Device> device_;
  std::vector<Pair> arguments_;
  std::vector<at::Tensor> results_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> host_of_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> device_of_;
  std::unordered_map<c10::StorageImpl*, c10::Storage> host_storage_of_;
  std::unordered_map<c10::StorageImpl*, Known> known_;
  std::unordered_map<c10::StorageImpl*, size_t> owners_;
  std::unordered_set<c10::TensorImpl*> counted_;
};

}  // namespace sim
