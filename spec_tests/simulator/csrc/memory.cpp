// Allocators of device memory and pinned memory. Device memory is host memory that belongs to one
// device.

#include "deferred_copies.h"
#include "faults.h"
#include "races.h"
#include "sim.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <unordered_set>

namespace sim {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kTotalMemory = size_t{16} << 30;

// The variables below are never destroyed, because tensors that outlive the interpreter still free
// their memory. Each device has its own lock on its own cache line, because replicas on several
// devices allocate at the same time.
struct alignas(64) Counters {
  std::mutex mutex;
  DeviceStats stats;
};
auto& all_counters = *new std::array<Counters, kMaxDevices>;

template <typename F>
auto with_stats(c10::DeviceIndex index, F&& use) {
  auto& counters = all_counters.at(index);
  const std::lock_guard<std::mutex> lock(counters.mutex);
  return use(counters.stats);
}

template <typename F>
void for_each_stat(DeviceStats& stats, F&& update) {
  for (auto* stat : {&stats.allocation, &stats.active, &stats.segment}) {
    update((*stat)[0], false);
  }
  for (auto* stat : {&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes,
                      &stats.requested_bytes}) {
    update((*stat)[0], true);
  }
}

// The byte that fills freed memory and new pinned memory: NaN in every floating type, nonzero in
// every type.
constexpr int kPoison = 0xFF;

// Returns shared ownership, because deferred copies keep memory alive after it is freed.
std::shared_ptr<c10::DataPtr> share(c10::DataPtr host) {
  return std::make_shared<c10::DataPtr>(std::move(host));
}

void release_shared(void* context) {
  delete static_cast<std::shared_ptr<c10::DataPtr>*>(context);
}

// The context of a device pointer: the host memory, and the device whose statistics count it.
struct Block {
  std::shared_ptr<c10::DataPtr> host;
  size_t nbytes;
  c10::DeviceIndex index;
  races::AllocationState allocation;
};

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  if (races::record_free(block->allocation) && deferred_copies::is_enabled()) {
    // A real allocator may give the memory to another tensor, although deferred copies still use
    // it.
    std::memset(block->host->get(), kPoison, block->nbytes);
  }
  with_stats(block->index, [&](DeviceStats& stats) {
    for_each_stat(stats, [&](auto& stat, bool bytes) { stat.decrease(bytes ? block->nbytes : 1); });
  });
  delete block;
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    return allocate_on(current_device(), nbytes);
  }

  void copy_data(void* to, const void* from, size_t nbytes) const override {
    std::memcpy(to, from, nbytes);
  }

  bool initialized() override {
    return true;
  }

  void emptyCache(c10::MempoolId_t /*pool*/) override {}

  void recordStream(const c10::DataPtr& memory, c10::Stream stream) override {
    if (auto* allocation = allocation_of(memory)) {
      races::record_stream(*allocation, stream);
    }
  }

  DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    check_usable(index);
    return with_stats(index, [](const DeviceStats& stats) { return stats; });
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override {
    check_usable(index);
    with_stats(index, [](DeviceStats& stats) {
      for_each_stat(stats, [](auto& stat, bool) { stat.reset_accumulated(); });
    });
  }

  void resetPeakStats(c10::DeviceIndex index) override {
    check_usable(index);
    with_stats(index, [](DeviceStats& stats) {
      for_each_stat(stats, [](auto& stat, bool) { stat.reset_peak(); });
    });
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const auto allocated = static_cast<size_t>(getDeviceStats(index).allocated_bytes[0].current);
    return {kTotalMemory - std::min(allocated, kTotalMemory), kTotalMemory};
  }
};

auto& pinned_mutex = *new std::mutex;
auto& pinned = *new std::unordered_set<const void*>;

struct PinnedBlock {
  std::shared_ptr<c10::DataPtr> host;
  size_t nbytes;
  races::AllocationState allocation;
};

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    auto* block = new PinnedBlock{share(c10::GetCPUAllocator()->allocate(nbytes)), nbytes, {}};
    races::init_allocation(block->allocation, -1, nbytes);
    auto* data = block->host->get();
    if (races::is_on() && nbytes > 0) {
      std::memset(data, kPoison, nbytes);
    }
    const std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned.insert(data);
    return {data, block, &PinnedAllocator::unpin, c10::Device(c10::kCPU)};
  }

  void copy_data(void* to, const void* from, size_t nbytes) const override {
    std::memcpy(to, from, nbytes);
  }

  bool record_event(void* /*data*/, void* /*context*/, c10::Stream /*stream*/) override {
    return true;  // deferred copies keep the memory alive
  }

  void empty_cache() override {}

  at::HostStats get_stats() override {
    return {};
  }

  void reset_accumulated_stats() override {}

  void reset_peak_stats() override {}

  static void unpin(void* context) {
    auto* block = static_cast<PinnedBlock*>(context);
    {
      const std::lock_guard<std::mutex> lock(pinned_mutex);
      pinned.erase(block->host->get());
    }
    if (faults::is_on("pinned-freed-early") && deferred_copies::is_enabled()) {
      std::memset(block->host->get(), kPoison, block->nbytes);
    }
    delete block;
  }
};

}  // namespace

c10::DeviceAllocator* allocator() {
  static auto* instance = new Allocator;
  return instance;
}

at::HostAllocator* pinned_allocator() {
  static auto* instance = new PinnedAllocator;
  return instance;
}

bool is_pinned(const void* data) {
  const std::lock_guard<std::mutex> lock(pinned_mutex);
  return data != nullptr && pinned.count(data) > 0;
}

c10::DataPtr allocate_on(c10::DeviceIndex index, size_t nbytes) {
  check_usable(index);
  if (nbytes == 0) {
    return {nullptr, c10::Device(kSim, index)};
  }
  return adopt_host_memory(c10::GetCPUAllocator()->allocate(nbytes), nbytes, index);
}

c10::DataPtr adopt_host_memory(c10::DataPtr host, size_t nbytes, c10::DeviceIndex index) {
  faults::check_memory(index);
  auto* data = host.get();
  with_stats(index, [&](DeviceStats& stats) {
    for_each_stat(stats, [&](auto& stat, bool bytes) { stat.increase(bytes ? nbytes : 1); });
  });
  auto* block = new Block{share(std::move(host)), nbytes, index, {}};
  races::init_allocation(block->allocation, index, nbytes);
  return {data, block, &release, c10::Device(kSim, index)};
}

races::AllocationState* allocation_of(const c10::DataPtr& memory) {
  if (memory.get_context() == nullptr) {
    return nullptr;
  }
  if (memory.get_deleter() == &release) {
    return &static_cast<Block*>(memory.get_context())->allocation;
  }
  if (memory.get_deleter() == &PinnedAllocator::unpin) {
    return &static_cast<PinnedBlock*>(memory.get_context())->allocation;
  }
  return nullptr;
}

c10::DataPtr share_memory(const c10::DataPtr& memory) {
  const std::shared_ptr<c10::DataPtr>* host = nullptr;
  if (memory.get_context() != nullptr && memory.get_deleter() == &release) {
    host = &static_cast<Block*>(memory.get_context())->host;
  } else if (memory.get_context() != nullptr && memory.get_deleter() == &PinnedAllocator::unpin) {
    host = &static_cast<PinnedBlock*>(memory.get_context())->host;
  } else {
    return {};
  }
  return {
      memory.get(), new std::shared_ptr<c10::DataPtr>(*host), &release_shared,
      c10::Device(c10::kCPU)};
}

races::AllocationState* allocation_of(const c10::Storage& storage) {
  return allocation_of(storage.data_ptr());
}

void resize_storage(c10::StorageImpl* storage, size_t nbytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  auto memory = allocate_on(
      faults::is_on("resize-on-current-device") ? current_device() : storage->device().index(),
      nbytes);
  const auto kept = std::min(nbytes, storage->nbytes());
  if (kept > 0) {
    if (auto* allocation = allocation_of(storage->data_ptr())) {
      races::record_read(*allocation, "resize_");
    }
    std::memcpy(memory.get(), storage->data(), kept);
  }
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(nbytes);
}

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, allocator());
REGISTER_HOST_ALLOCATOR(c10::DeviceType::PrivateUse1, pinned_allocator());

}  // namespace sim
