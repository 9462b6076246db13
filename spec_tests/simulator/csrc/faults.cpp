#include "faults.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <map>

namespace sim::faults {
namespace {

std::atomic<Fault> current{Fault::none};
std::atomic<int> full_device{-1};
std::atomic<int64_t> allowed_allocations{0};

}  // namespace

void set(const std::string& name, int device, int64_t allocations) {
  static const auto& kNames = *new std::map<std::string, Fault>{
      {"", Fault::none},
      {"zero-is-current", Fault::zero_is_current},
      {"device-left", Fault::device_left},
      {"dirty-memory", Fault::dirty_memory},
      {"no-memory", Fault::no_memory},
      {"garbled-peers", Fault::garbled_peers}};
  const auto entry = kNames.find(name);
  TORCH_CHECK_VALUE(entry != kNames.end(), "sim has no fault '", name, "'");
  full_device = device;
  allowed_allocations = allocations;
  current = entry->second;
}

bool is_on(Fault fault) noexcept {
  return current.load(std::memory_order_relaxed) == fault;
}

void check_memory(c10::DeviceIndex device) {
  if (!is_on(Fault::no_memory) || device != full_device) {
    return;
  }
  TORCH_CHECK_WITH(
      OutOfMemoryError, allowed_allocations-- > 0,
      "sim out of memory: sim:", static_cast<int>(device), " has no memory left");
}

}  // namespace sim::faults
