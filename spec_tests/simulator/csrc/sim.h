// Functions that the source files of the simulated accelerator share.
//
// A `sim` device is an ordinal. Its memory is host memory that only operators on that device may
// access. A stream is only a number, because every operator has finished when it returns.

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
struct AllocationState;
}

constexpr c10::DeviceType kSim = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 64;

// device.cpp: ordinals, forks, and PyTorch's interfaces for device guards and device hooks.
void start(int device_count);
int device_count() noexcept;
c10::DeviceIndex current_device() noexcept;
// Sets the current device. Device guards that end later do not restore the previous device. This
// is the fault "device-left".
void force_current_device(c10::DeviceIndex index) noexcept;
bool in_bad_fork() noexcept;
// Raises an error for an invalid ordinal, and in a forked child whose parent used the devices.
void check_usable(c10::DeviceIndex index);
// Returns the current stream of the device in this thread.
c10::StreamId current_stream_id(c10::DeviceIndex index) noexcept;
// Returns the device itself, or the current device if `device` has no index.
c10::Device with_index(c10::Device device);
void register_runtime();

// memory.cpp: the allocator, its statistics, and pinned host memory.
c10::DeviceAllocator* allocator();
at::HostAllocator* pinned_allocator();
bool is_pinned(const void* data);
c10::DataPtr allocate_on(c10::DeviceIndex index, size_t nbytes);
// Turns memory that a CPU operator has allocated into device memory without a copy.
c10::DataPtr adopt_host_memory(c10::DataPtr host, size_t nbytes, c10::DeviceIndex index);
void resize_storage(c10::StorageImpl* storage, size_t nbytes);
// Returns a host pointer to the same memory. The pointer stays valid after the device tensor frees
// the memory. Returns null for memory that is neither device memory nor pinned memory.
c10::DataPtr share_memory(const c10::DataPtr& memory);
// Returns the recorded accesses to device memory or pinned memory; null for other memory.
races::AllocationState* allocation_of(const c10::DataPtr& memory);
races::AllocationState* allocation_of(const c10::Storage& storage);

// generator.cpp: one generator for each device. Each wraps a CPU generator.
at::Generator make_generator(c10::DeviceIndex index);
const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator host_generator(const at::Generator& generator);

// host_views.cpp: returns a CPU tensor that shares the memory of a `sim` tensor, for one kernel.
at::Tensor host_view(const at::Tensor& tensor);
// Returns a CPU tensor that shares the memory of a `sim` tensor, for a deferred copy. The bytes
// stay valid after the `sim` tensor frees the memory. Returns an undefined tensor for memory that
// is neither device memory nor pinned memory.
at::Tensor memory_sharing_view(const at::Tensor& tensor);

// fallback.cpp: runs the CPU kernel for every operator without a sim kernel.
void register_fallbacks();
// Runs the operator's CPU kernel. A sim kernel calls this function for inputs that the sim kernel
// does not handle.
void call_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace sim
