// Bugs that real accelerator back ends have had, enabled one at a time. `FAULTS` in faults.py
// describes them.

#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace sim::faults {

// The hash FNV-1a of a name. 0 means that no fault is enabled.
constexpr uint64_t hash(std::string_view name) {
  uint64_t value = name.empty() ? 0 : 0xcbf29ce484222325;
  for (const char letter : name) {
    value = (value ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  return value;
}

// The hash of a literal, computed at compile time.
struct Fault {
  consteval Fault(const char* name) : value(hash(name)) {}
  uint64_t value;
};

extern std::atomic<uint64_t> current;

inline bool is_on(Fault fault) noexcept {
  return current.load(std::memory_order_relaxed) == fault.value;
}

// Enables one fault and disables the others; an empty name disables all. `device` and
// `allocations` are used by the fault "no-memory" only: the device refuses memory after this
// number of allocations.
void set(const std::string& name, int device, int64_t allocations);
void check_memory(c10::DeviceIndex device);
// With the fault "unusable-after-errors", an operator that has raised an error makes the devices
// unusable.
void record_error() noexcept;
void check_no_error();

}  // namespace sim::faults
