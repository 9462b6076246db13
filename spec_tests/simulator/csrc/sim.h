// What the parts of the simulated accelerator know of each other.
//
// A `sim` device is an ordinal. Its memory is host memory that only operators of that ordinal
// may touch; its streams are numbers, because every operator has finished when it returns.

#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
#include <ATen/core/TensorBody.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

namespace sim {

namespace races {
struct Shadow;
}

constexpr c10::DeviceType kSim = c10::DeviceType::PrivateUse1;
constexpr int kMostDevices = 64;

// device.cpp: ordinals, forks, the guard and the hooks.
void start(int device_count);
int device_count() noexcept;
c10::DeviceIndex current_device() noexcept;
// Makes a device current, whatever guards are open: a fault.
void leave_device(c10::DeviceIndex index) noexcept;
bool in_bad_fork() noexcept;
// Raises in a forked child whose parent used the devices, and for an ordinal that does not exist.
void check_usable(c10::DeviceIndex index);
// The stream that is current on the device in this thread.
c10::StreamId current_stream_id(c10::DeviceIndex index) noexcept;
// `sim` without a number means the current device.
c10::Device with_index(c10::Device device);
void register_runtime();

// memory.cpp: the allocator, its counters, and host memory that counts as pinned.
c10::DeviceAllocator* allocator();
at::HostAllocator* pinned_allocator();
bool is_pinned(const void* data);
c10::DataPtr allocate_on(c10::DeviceIndex index, size_t nbytes);
// Makes memory that a CPU operator has just allocated memory of the device, without a copy.
c10::DataPtr adopt(c10::DataPtr host, size_t nbytes, c10::DeviceIndex index);
void resize_storage(c10::StorageImpl* storage, size_t nbytes);
// The same bytes for the host, which outlive the memory; null for what is neither a device's nor
// pinned.
c10::DataPtr shared_bytes(const c10::DataPtr& memory);
// What races.h knows of memory of a device or of pinned memory; null for other memory.
races::Shadow* shadow_of(const c10::DataPtr& memory);
races::Shadow* shadow_of(const c10::Storage& storage);

// generator.cpp: one generator for each device, driven by a CPU generator of its own.
at::Generator make_generator(c10::DeviceIndex index);
const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator host_generator(const at::Generator& generator);

// host_views.cpp: a CPU tensor over the memory of a `sim` tensor, for use within one kernel.
at::Tensor host_view(const at::Tensor& tensor);
// One that keeps the bytes and lets the memory go back to its allocator, as a copy that is under
// way does; undefined for memory that is neither a device's nor pinned.
at::Tensor lasting_view(const at::Tensor& tensor);

// fallback.cpp: the CPU's kernel for every operator that has none of its own.
void register_fallbacks();
// Runs it for a kernel of our own that only some of the calls need.
void call_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace sim
