#include "faults.h"

#include <c10/util/Exception.h>

namespace sim::faults {
namespace {

std::atomic<int> full_device{-1};
std::atomic<int64_t> allowed_allocations{0};
std::atomic<bool> has_error{false};

}  // namespace

std::atomic<uint64_t> current{0};

void set(const std::string& name, int device, int64_t allocations) {
  full_device = device;
  allowed_allocations = allocations;
  has_error = false;
  current = hash(name);
}

void check_memory(c10::DeviceIndex device) {
  if (!is_on("no-memory") || device != full_device) {
    return;
  }
  TORCH_CHECK_WITH(
      OutOfMemoryError, allowed_allocations-- > 0,
      "sim out of memory: sim:", static_cast<int>(device), " has no memory left");
}

void record_error() noexcept {
  has_error = has_error || is_on("unusable-after-errors");
}

void check_no_error() {
  TORCH_CHECK(!has_error, "sim error: an earlier operator has failed");
}

}  // namespace sim::faults
