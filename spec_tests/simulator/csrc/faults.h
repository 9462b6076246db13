// Ways in which real back ends have misbehaved, switched on one by one.

#pragma once

#include <c10/core/Device.h>

#include <string>

namespace sim::faults {

enum class Fault {
  none,
  zero_is_current,  // ordinal 0 is taken for "the current device"
  device_left,  // a copy between devices leaves the receiver current
  dirty_memory,  // fresh memory is not zero, outside blocks of races.h too
  no_memory,  // one device has none left
  garbled_peers,  // copies between devices deliver zeros
};

// One at a time; the empty name ends it. `device` is the one without memory.
void set(const std::string& name, int device);
bool is_on(Fault fault) noexcept;
void check_memory(c10::DeviceIndex device);

}  // namespace sim::faults
