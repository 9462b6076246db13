// Memory of the devices: host memory that is counted for one ordinal, and never shared.

#include "faults.h"
#include "late.h"
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

// What follows is leaked on purpose: tensors that outlive the interpreter return their memory.
// Each device has a lock of its own, on a cache line of its own: replicas on several devices
// allocate at the same time.
struct alignas(64) Counters {
  std::mutex mutex;
  DeviceStats stats;
};
auto& all_counters = *new std::array<Counters, kMostDevices>;

template <typename F>
auto with_stats(c10::DeviceIndex index, F&& use) {
  auto& counters = all_counters.at(index);
  const std::lock_guard<std::mutex> lock(counters.mutex);
  return use(counters.stats);
}

template <typename F>
void each_total(DeviceStats& stats, F&& change) {
  for (auto* total : {&stats.allocation, &stats.active, &stats.segment}) {
    change((*total)[0], false);
  }
  for (auto* total : {&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes,
                      &stats.requested_bytes}) {
    change((*total)[0], true);
  }
}

// What memory holds that was another's: NaN in every floating type, no zero in any.
constexpr int kForeign = 0xFF;

// Memory that copies under way keep, too.
std::shared_ptr<c10::DataPtr> keep(c10::DataPtr host) {
  return std::make_shared<c10::DataPtr>(std::move(host));
}

void let_go(void* context) {
  delete static_cast<std::shared_ptr<c10::DataPtr>*>(context);
}

// The context of a device pointer: the host memory behind it, and whose counters it fills.
struct Block {
  std::shared_ptr<c10::DataPtr> host;
  size_t nbytes;
  c10::DeviceIndex index;
  races::Shadow shadow;
};

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  if (races::memory_freed(block->shadow) && late::is_on()) {
    // Somebody else has it now, whatever copies are still under way.
    std::memset(block->host->get(), kForeign, block->nbytes);
  }
  with_stats(block->index, [&](DeviceStats& stats) {
    each_total(stats, [&](auto& stat, bool bytes) { stat.decrease(bytes ? block->nbytes : 1); });
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
    if (auto* shadow = shadow_of(memory)) {
      races::record_stream(*shadow, stream);
    }
  }

  DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    check_usable(index);
    return with_stats(index, [](const DeviceStats& stats) { return stats; });
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override {
    check_usable(index);
    with_stats(index, [](DeviceStats& stats) {
      each_total(stats, [](auto& stat, bool) { stat.reset_accumulated(); });
    });
  }

  void resetPeakStats(c10::DeviceIndex index) override {
    check_usable(index);
    with_stats(index, [](DeviceStats& stats) {
      each_total(stats, [](auto& stat, bool) { stat.reset_peak(); });
    });
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const auto held = static_cast<size_t>(getDeviceStats(index).allocated_bytes[0].current);
    return {kTotalMemory - std::min(held, kTotalMemory), kTotalMemory};
  }
};

auto& pinned_mutex = *new std::mutex;
auto& pinned = *new std::unordered_set<const void*>;

struct PinnedBlock {
  std::shared_ptr<c10::DataPtr> host;
  races::Shadow shadow;
};

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    auto* block = new PinnedBlock{keep(c10::GetCPUAllocator()->allocate(nbytes)), {}};
    races::memory_made(block->shadow, -1, nbytes);
    auto* data = block->host->get();
    if (races::is_on() && nbytes > 0) {
      std::memset(data, kForeign, nbytes);
    }
    const std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned.insert(data);
    return {data, block, &PinnedAllocator::unpin, c10::Device(c10::kCPU)};
  }

  void copy_data(void* to, const void* from, size_t nbytes) const override {
    std::memcpy(to, from, nbytes);
  }

  bool record_event(void* /*data*/, void* /*context*/, c10::Stream /*stream*/) override {
    return true;  // memory is kept until nothing is in flight
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
  return adopt(c10::GetCPUAllocator()->allocate(nbytes), nbytes, index);
}

c10::DataPtr adopt(c10::DataPtr host, size_t nbytes, c10::DeviceIndex index) {
  faults::check_memory(index);
  auto* data = host.get();
  with_stats(index, [&](DeviceStats& stats) {
    each_total(stats, [&](auto& stat, bool bytes) { stat.increase(bytes ? nbytes : 1); });
  });
  auto* block = new Block{keep(std::move(host)), nbytes, index, {}};
  races::memory_made(block->shadow, index, nbytes);
  return {data, block, &release, c10::Device(kSim, index)};
}

races::Shadow* shadow_of(const c10::DataPtr& memory) {
  if (memory.get_context() == nullptr) {
    return nullptr;
  }
  if (memory.get_deleter() == &release) {
    return &static_cast<Block*>(memory.get_context())->shadow;
  }
  if (memory.get_deleter() == &PinnedAllocator::unpin) {
    return &static_cast<PinnedBlock*>(memory.get_context())->shadow;
  }
  return nullptr;
}

c10::DataPtr shared_bytes(const c10::DataPtr& memory) {
  const std::shared_ptr<c10::DataPtr>* host = nullptr;
  if (memory.get_context() != nullptr && memory.get_deleter() == &release) {
    host = &static_cast<Block*>(memory.get_context())->host;
  } else if (memory.get_context() != nullptr && memory.get_deleter() == &PinnedAllocator::unpin) {
    host = &static_cast<PinnedBlock*>(memory.get_context())->host;
  } else {
    return {};
  }
  return {
      memory.get(), new std::shared_ptr<c10::DataPtr>(*host), &let_go, c10::Device(c10::kCPU)};
}

races::Shadow* shadow_of(const c10::Storage& storage) {
  return shadow_of(storage.data_ptr());
}

void resize_storage(c10::StorageImpl* storage, size_t nbytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  auto memory = allocate_on(storage->device().index(), nbytes);
  const auto kept = std::min(nbytes, storage->nbytes());
  if (kept > 0) {
    if (auto* shadow = shadow_of(storage->data_ptr())) {
      races::memory_read(*shadow, "resize_");
    }
    std::memcpy(memory.get(), storage->data(), kept);
  }
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(nbytes);
}

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, allocator());
REGISTER_HOST_ALLOCATOR(c10::DeviceType::PrivateUse1, pinned_allocator());

}  // namespace sim
