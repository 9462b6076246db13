// Bugs that real accelerator back ends have had, enabled one at a time.

#pragma once

#include <c10/core/Device.h>

#include <string>

namespace sim::faults {

enum class Fault {
  none,
  zero_is_current,  // ordinal 0 selects the current device
  device_left,  // a copy between devices makes the destination the current device
  dirty_memory,  // new memory is not zero, even outside `simulator.races` blocks
  no_memory,  // one device has no memory left
  garbled_peers,  // copies between devices write zeros
};

// Enables one fault and disables the others; an empty name disables all. `device` and
// `allocations` are used by the fault no_memory only: the device refuses memory after this number
// of allocations.
void set(const std::string& name, int device, int64_t allocations);
bool is_on(Fault fault) noexcept;
void check_memory(c10::DeviceIndex device);

}  // namespace sim::faults
