// The devices, the current device of each thread, streams and events.

#include "faults.h"
#include "features.h"
#include "races.h"
#include "sim.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

namespace sim {
namespace {

std::atomic<int> count{0};
std::atomic<bool> used{false};
std::atomic<bool> forked_after_use{false};
std::atomic<c10::StreamId> last_stream{0};

thread_local c10::DeviceIndex index_of_thread = 0;
// Set by the fault "device-left": device guards do not restore the previous device until a call
// sets a device.
thread_local bool is_device_forced = false;
thread_local std::map<c10::DeviceIndex, c10::StreamId> streams_of_thread;
// Used by all threads with the faults "shared-device" and "shared-streams".
c10::DeviceIndex shared_index = 0;
auto& shared_streams = *new std::map<c10::DeviceIndex, c10::StreamId>;
const auto main_thread = std::this_thread::get_id();

c10::DeviceIndex& current_index() {
  return faults::is_on("shared-device") ? shared_index : index_of_thread;
}

std::map<c10::DeviceIndex, c10::StreamId>& current_streams() {
  return faults::is_on("shared-streams") ? shared_streams : streams_of_thread;
}

struct Event {
  c10::DeviceIndex index;
  std::chrono::steady_clock::time_point recorded_at;
  races::EventClock clock;
};

c10::Device at_index(c10::DeviceIndex index) {
  return c10::Device(kSim, index);
}

c10::Stream stream_of(c10::Device device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device, id);
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override {
    return kSim;
  }

  c10::Device exchangeDevice(c10::Device device) const override {
    const auto previous = getDevice();
    check_usable(device.index());
    current_index() = device.index();
    is_device_forced = false;
    return previous;
  }

  c10::Device getDevice() const override {
    return at_index(current_index());
  }

  void setDevice(c10::Device device) const override {
    if (!faults::is_on("device-stuck")) {
      exchangeDevice(device);
    }
  }

  // Called by device guards when they end.
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (!is_device_forced || !faults::is_on("device-left")) {
      current_index() = device.index();
    }
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }

#if __has_include(<c10/core/DeviceCapability.h>)
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override {
    return {};  // all dtypes
  }
#endif

  c10::Stream getStream(c10::Device device) const override {
    device = with_index(device);
    if (faults::is_on("stream-of-current-device") && current_index() != 0) {
      device = getDevice();
    }
    return stream_of(device, current_stream_id(device.index()));
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_of(with_index(device), 0);
  }

  c10::Stream getNewStream(c10::Device device, int priority) const override {
    if (!features::has(features::Feature::new_streams)) {
      return DeviceGuardImplInterface::getNewStream(device, priority);  // raises an error
    }
    device = with_index(device);
    check_usable(device.index());
    if (faults::is_on("one-stream")) {
      return getDefaultStream(device);
    }
    const bool is_last = device.index() == device_count() - 1;
    if (faults::is_on("new-stream-on-device-0") && is_last) {
      device = at_index(0);
    }
    return stream_of(device, ++last_stream);
  }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high_priority*/) const override {
    return getNewStream(device, 0);
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    check_usable(stream.device_index());
    const auto previous = getStream(stream.device());
    const bool is_last = stream.device_index() == device_count() - 1;
    if ((faults::is_on("stream-left") && is_last && stream.id() == 0) ||
        (faults::is_on("streams-of-main-thread") && std::this_thread::get_id() != main_thread)) {
      return previous;
    }
    current_streams()[stream.device_index()] = stream.id();
    if (faults::is_on("stream-of-all-devices")) {
      for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
        current_streams()[index] = stream.id();
      }
    }
    return previous;
  }

  // Every operator has finished. The race detector counts a query that returns true as a wait of
  // the host.
  bool queryStream(const c10::Stream& stream) const override {
    races::host_waits_for(stream);
    return true;
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    check_usable(stream.device_index());
    races::host_waits_for(stream);
  }

  void synchronizeDevice(c10::DeviceIndex index) const override {
    check_usable(index);
    if (!faults::is_on("no-synchronize")) {
      races::host_waits_for(index);
    }
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex index, c10::EventFlag)
      const override {
    check_usable(stream.device_index());
    TORCH_CHECK(
        index == -1 || index == stream.device_index(),
        "an event of sim:", static_cast<int>(index), " cannot be recorded on a stream of sim:",
        static_cast<int>(stream.device_index()));
    if (*event != nullptr && faults::is_on("first-record")) {
      return;
    }
    if (*event == nullptr) {
      *event = new Event;
    }
    *static_cast<Event*>(*event) = {
        stream.device_index(), std::chrono::steady_clock::now(), races::record_event(stream)};
  }

  // Waiting for an event that was never recorded does nothing.
  void block(void* event, const c10::Stream& stream) const override {
    check_usable(stream.device_index());
    if (event == nullptr) {
      return;
    }
    const auto& awaited = *static_cast<Event*>(event);
    const bool is_peer = awaited.index != stream.device_index();
    TORCH_CHECK(
        !is_peer || !faults::is_on("refused-peer-waits"), "sim has no waits between devices");
    if (!faults::is_on(is_peer ? faults::Fault("no-peer-waits") : faults::Fault("no-waits"))) {
      races::wait_event(stream, awaited.clock);
    }
  }

  bool queryEvent(void* event) const override {
    if (!features::has(features::Feature::events)) {
      return DeviceGuardImplInterface::queryEvent(event);  // raises an error
    }
    synchronizeEvent(event);
    return !faults::is_on("never-done");
  }

  void synchronizeEvent(void* event) const override {
    if (!features::has(features::Feature::events)) {
      DeviceGuardImplInterface::synchronizeEvent(event);  // raises an error
    }
    if (event != nullptr) {
      races::host_waits_for(static_cast<Event*>(event)->clock);
    }
  }

  // Autograd calls this function instead of Tensor.record_stream.
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream)
      const override {
    allocator()->recordStream(memory, stream);
  }

  void destroyEvent(void* event, c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Event*>(event);
  }

  double elapsedTime(void* begin, void* end, c10::DeviceIndex index) const override {
    if (!features::has(features::Feature::events)) {
      return DeviceGuardImplInterface::elapsedTime(begin, end, index);  // raises an error
    }
    TORCH_CHECK(begin && end, "both events must be recorded before elapsed_time");
    const auto between =
        static_cast<Event*>(end)->recorded_at - static_cast<Event*>(begin)->recorded_at;
    const auto milliseconds = std::chrono::duration<double, std::milli>(between).count();
    return faults::is_on("seconds") ? milliseconds / 1000 : milliseconds;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override {
    return true;
  }

  bool isAvailable() const override {
    return device_count() > 0;
  }

  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return used && !forked_after_use && index >= 0 && index < device_count();
  }

  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }

  c10::DeviceIndex getCurrentDevice() const override {
    return current_index();
  }

  void setCurrentDevice(c10::DeviceIndex index) const override {
    check_usable(index);
    current_index() = index;
  }

  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto previous = current_index();
    setCurrentDevice(index);
    return previous;
  }

  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_index() : exchangeDevice(index);
  }

  at::Allocator* getPinnedMemoryAllocator() const override {
    TORCH_CHECK_NOT_IMPLEMENTED(
        features::has(features::Feature::pinned_memory), "sim has no pinned memory");
    return pinned_allocator();
  }

  bool isPinnedPtr(const void* data) const override {
    return is_pinned(data) && !faults::is_on("unpinned");
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index < 0 ? current_index() : index);
  }

  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return make_generator(index < 0 ? current_index() : index);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), nbytes);
  }
};

}  // namespace

void start(int device_count) {
  TORCH_CHECK_VALUE(
      device_count <= kMaxDevices, "sim can have at most ", kMaxDevices, " devices");
  count = device_count;
}

int device_count() noexcept {
  return count;
}

c10::DeviceIndex current_device() noexcept {
  return current_index();
}

c10::StreamId current_stream_id(c10::DeviceIndex index) noexcept {
  const auto& streams = current_streams();
  const auto entry = streams.find(index);
  return entry == streams.end() ? 0 : entry->second;
}

void force_current_device(c10::DeviceIndex index) noexcept {
  current_index() = index;
  is_device_forced = true;
}

bool in_bad_fork() noexcept {
  return forked_after_use;
}

void check_usable(c10::DeviceIndex index) {
  faults::check_no_error();
  TORCH_CHECK(
      index == 0 || !faults::is_on("main-thread-only") ||
          std::this_thread::get_id() == main_thread,
      "sim error: this thread cannot use sim:", static_cast<int>(index));
  TORCH_CHECK(
      !forked_after_use || faults::is_on("fork-accepted"),
      "Cannot re-initialize sim in forked subprocess. To use sim with multiprocessing, you must "
      "use the 'spawn' start method");
  TORCH_CHECK(
      index >= 0 && index < count,
      "sim error: invalid device ordinal ", static_cast<int>(index), ": there are ", count.load(),
      " devices, sim:0 to sim:", count.load() - 1);
  // `used` is written only once, because each write invalidates the cache line of the other cores.
  if (!used.load(std::memory_order_relaxed)) {
    used = true;
  }
}

c10::Device with_index(c10::Device device) {
  TORCH_CHECK(device.type() == kSim, "Expected a sim device, but got ", device);
  if (device.index() >= count && faults::is_on("missing-is-zero")) {
    return at_index(0);
  }
  const bool is_ignored = device.index() == 0 && faults::is_on("zero-is-current");
  return device.has_index() && !is_ignored ? device : at_index(current_index());
}

void register_runtime() {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  pthread_atfork(nullptr, nullptr, [] { forked_after_use = used.load(); });
}

}  // namespace sim
