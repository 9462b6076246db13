#include "races.h"

#include "deferred_copies.h"
#include "faults.h"
#include "sim.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace sim::races {
namespace {

// Maximum number of recorded accesses of an allocation. Each further access drops the oldest one.
constexpr size_t kMaxAccesses = 1024;
// Maximum number of races that one `simulator.races` block records: a mistake often causes many.
constexpr size_t kMaxRaces = 50;

struct Stream {
  c10::DeviceIndex device;
  c10::StreamId id;
  Clock clock;
  uint64_t wait_count = 0;  // when the clock of the host was merged last
};

// The mutex guards all variables below, which are never destroyed, because threads may outlive this
// library. Never free device memory while the mutex is held: the free acquires the mutex again.
auto& mutex = *new std::mutex;
auto& streams = *new std::vector<Stream>;
auto& stream_indices = *new std::map<std::pair<c10::DeviceIndex, c10::StreamId>, uint32_t>;
auto& host_clock = *new Clock;  // the steps for which some thread has waited
uint64_t wait_count = 0;
// The number of outermost blocks so far. Work before the current outermost block counts as
// finished, so accesses of earlier generations are ignored.
uint64_t generation = 0;
struct Block {
  std::vector<Race> races;
  std::optional<uint64_t> late_copies;
};
auto& blocks = *new std::vector<Block>;

using Lock = std::lock_guard<std::mutex>;

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) {
    clock.resize(other.size());
  }
  for (size_t i = 0; i < other.size(); ++i) {
    clock[i] = std::max(clock[i], other[i]);
  }
}

bool is_ordered_before(const Access& access, const Clock& clock) {
  return access.stream < clock.size() && clock[access.stream] >= access.time;
}

uint32_t index_of_stream(c10::DeviceIndex device, c10::StreamId id) {
  const auto [entry, is_new] =
      stream_indices.try_emplace({device, id}, static_cast<uint32_t>(streams.size()));
  if (is_new) {
    streams.push_back({device, id, {}});
    streams.back().clock.resize(streams.size());
  }
  return entry->second;
}

// Merges the clock of the host into the stream's clock, before new work is enqueued. Returns the
// stream.
Stream& sync_with_host(uint32_t index) {
  auto& stream = streams[index];
  if (stream.wait_count != wait_count) {
    join(stream.clock, host_clock);
    stream.wait_count = wait_count;
  }
  return stream;
}

Stream& sync_with_host(const c10::Stream& stream) {
  return sync_with_host(index_of_stream(stream.device_index(), stream.id()));
}

void join_host_clock(const Clock& clock) {
  join(host_clock, clock);
  ++wait_count;
}

void run_copies_for_host() {
  if (!deferred_copies::is_enabled()) {
    return;
  }
  Clock clock;
  {
    const Lock lock(mutex);
    clock = host_clock;
  }
  deferred_copies::run_ordered_before(clock);
}

bool is_same_operation(const Operation& a, const Operation& b) {
  return a.op == b.op && a.device == b.device && a.location.code == b.location.code &&
      a.location.instruction == b.location.instruction && a.location.node == b.location.node;
}

void add_race(
    const AllocationState& allocation, const Access& first, const Operation& second, bool writes,
    bool is_free) {
  if (blocks.empty()) {
    return;
  }
  auto& races = blocks.back().races;
  const bool is_known = std::any_of(races.begin(), races.end(), [&](const Race& race) {
    return is_same_operation(race.first, *first.operation) &&
        is_same_operation(race.second, second);
  });
  if (!is_known && races.size() < kMaxRaces) {
    races.push_back({*first.operation, second, first.is_write, writes, is_free, allocation.device,
                     allocation.nbytes, allocation.allocated_by});
  }
}

void discard_old_accesses(AllocationState& allocation) {
  if (allocation.generation != generation) {
    allocation.accesses.clear();
    allocation.generation = generation;
  }
}

// Returns whether `later` makes `earlier` redundant: an access that does not race with `later` does
// not race with `earlier` either.
bool supersedes(const Access& later, const Access& earlier) {
  return later.is_write || !earlier.is_write;
}

// Removes the bytes of `later` from the access at `index`. Returns whether no bytes remain.
bool remove_bytes(std::vector<Access>& accesses, size_t index, const ByteRange& later) {
  auto& bytes = accesses[index].bytes;
  if (is_equal(bytes, later)) {
    return true;
  }
  if (later.layout || bytes.layout) {
    return !later.layout && later.begin <= bytes.begin && bytes.end <= later.end;
  }
  if (bytes.begin < later.begin && later.end < bytes.end) {
    auto upper = accesses[index];
    upper.bytes.begin = later.end;
    bytes.end = later.begin;
    accesses.push_back(std::move(upper));
    return false;
  }
  if (bytes.begin < later.begin) {
    bytes.end = std::min(bytes.end, later.begin);
  } else {
    bytes.begin = std::max(bytes.begin, later.end);
  }
  return bytes.begin >= bytes.end;
}

void add_access(AllocationState& allocation, Access access) {
  discard_old_accesses(allocation);
  auto& accesses = allocation.accesses;
  const auto& clock = streams[access.stream].clock;
  size_t kept = 0;
  const auto before = accesses.size();
  for (size_t i = 0; i < before; ++i) {
    const auto& other = accesses[i];
    bool is_redundant = false;
    if (other.bytes.begin < access.bytes.end && access.bytes.begin < other.bytes.end) {
      if (other.stream == access.stream || is_ordered_before(other, clock)) {
        is_redundant = supersedes(access, other) && remove_bytes(accesses, i, access.bytes);
      } else if ((other.is_write || access.is_write) && overlap(other.bytes, access.bytes)) {
        add_race(allocation, other, *access.operation, access.is_write, false);
      }
    }
    if (!is_redundant) {
      if (kept != i) {
        accesses[kept] = std::move(accesses[i]);
      }
      ++kept;
    }
  }
  accesses.erase(accesses.begin() + kept, accesses.begin() + before);
  accesses.push_back(std::move(access));
  if (accesses.size() > kMaxAccesses) {
    accesses.erase(accesses.begin());
  }
}

std::shared_ptr<const Operation> make_operation(
    const char* op, c10::DeviceIndex device, c10::StreamId stream) {
  return std::make_shared<const Operation>(
      Operation{op, device, stream, &current_thread_name(), current_location()});
}

// Starts the next step of the stream and returns its number.
Time tick(uint32_t index) {
  auto& stream = sync_with_host(index);
  return ++stream.clock[index];
}

// Returns whether the memory may be freed after `access`: `access` ran on a recorded stream, or is
// ordered before `clock`, the clock of the allocating stream.
bool is_safe_to_free(
    const AllocationState& allocation, const Access& access, const Clock& clock) {
  const auto& stream = streams[access.stream];
  const auto& recorded = allocation.recorded_streams;
  return is_ordered_before(access, clock) ||
      (stream.device == allocation.device &&
       std::find(recorded.begin(), recorded.end(), stream.id) != recorded.end());
}

}  // namespace

std::atomic<bool> on{false};

void open(std::optional<uint64_t> late_copies) {
  deferred_copies::set_seed(late_copies);
  const Lock lock(mutex);
  if (blocks.empty()) {
    ++generation;
    streams.clear();
    stream_indices.clear();
    host_clock.clear();
  }
  blocks.push_back({{}, late_copies});
  on = true;
}

std::vector<Race> close() {
  deferred_copies::run_all();
  const Lock lock(mutex);
  auto races = std::move(blocks.back().races);
  blocks.pop_back();
  on = !blocks.empty();
  deferred_copies::set_seed(blocks.empty() ? std::nullopt : blocks.back().late_copies);
  return races;
}

Step::Step(const char* op, c10::DeviceIndex device) {
  const auto id = current_stream_id(device);
  operation_ = make_operation(op, device, id);
  {
    const Lock lock(mutex);
    generation_ = generation;
    stream_ = index_of_stream(device, id);
    time_ = tick(stream_);
    if (faults::is_on("synchronous-operators")) {
      join_host_clock(streams[stream_].clock);
    }
    clock_ = deferred_copies::is_enabled() ? streams[stream_].clock : Clock();
  }
  deferred_copies::run_ordered_before(clock_);
}

// Returns whether the outermost block in which the step began is still the current one. A thread
// may continue after its block has ended.
bool Step::is_current() const {
  return generation_ == generation;
}

void Step::record(const at::Tensor& tensor, bool is_write) {
  if (!tensor.defined()) {
    return;
  }
  if (tensor.is_sparse()) {
    const auto* impl = static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
    record_memory(impl->indices(), is_write);
    record_memory(impl->values(), is_write);
  } else if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto* impl = static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
    for (const auto& part : {impl->compressed_indices(), impl->plain_indices(), impl->values()}) {
      record_memory(part, is_write);
    }
  } else if (tensor.layout() == c10::kStrided) {
    record_memory(tensor, is_write);
  }
}

void Step::record_memory(const at::Tensor& tensor, bool is_write) {
  auto* allocation = tensor.has_storage() ? allocation_of(tensor.storage()) : nullptr;
  if (allocation == nullptr) {
    return;
  }
  accessed_.push_back(allocation);
  auto bytes = bytes_of(tensor);
  const Lock lock(mutex);
  if (bytes.begin < bytes.end && is_current()) {
    add_access(*allocation, {std::move(bytes), stream_, time_, is_write, operation_});
  }
}

void Step::returns(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || !tensor.has_storage()) {
    record(tensor, true);
    return;
  }
  auto* allocation = allocation_of(tensor.storage());
  const bool is_new =
      std::find(accessed_.begin(), accessed_.end(), allocation) == accessed_.end();
  if (allocation != nullptr && is_new) {
    {
      const Lock lock(mutex);
      allocation->allocated_by = allocation->allocated_by ? allocation->allocated_by : operation_;
    }
    record_memory(tensor, true);
  }
}

void Step::host_waits() const {
  {
    const Lock lock(mutex);
    if (is_current()) {
      join_host_clock(streams[stream_].clock);
    }
  }
  run_copies_for_host();
}

bool record_copy(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (!is_on()) {
    return false;
  }
  const bool from_device = from.device().type() == kSim;
  const bool to_device = to.device().type() == kSim;
  const bool peers = from_device && to_device && from.device() != to.device();
  // Faults change only copies that are non_blocking.
  const bool on_destination = peers && non_blocking && faults::is_on("copy-on-destination");
  const auto index = (from_device && !on_destination ? from : to).device().index();
  const auto destination = c10::Stream(
      c10::Stream::UNSAFE, c10::Device(kSim, to_device ? to.device().index() : index),
      current_stream_id(to_device ? to.device().index() : index));
  // 1. For a copy between devices, the source's stream waits for the destination's stream.
  if (peers && !(non_blocking && faults::is_on("copy-before-destination"))) {
    const Lock lock(mutex);
    const auto clock = sync_with_host(destination).clock;
    join(sync_with_host(index_of_stream(index, current_stream_id(index))).clock, clock);
  }
  Step step("aten::copy_", index);
  step.reads(from);
  step.writes(to);
  // 2. After the copy, the destination's stream waits for the source's stream.
  if (peers && !(non_blocking && faults::is_on("destination-before-copy"))) {
    const Lock lock(mutex);
    if (step.is_current()) {
      const auto clock = streams[step.stream_].clock;
      join(sync_with_host(destination).clock, clock);
    }
  }
  // 3. The host waits for a copy from or to the host, unless non_blocking is set. CUDA may also
  //    wait for a non_blocking copy with pageable memory, but a program must not rely on it.
  if (!non_blocking && !(from_device && to_device)) {
    step.host_waits();
    return false;
  }
  if (faults::is_on("synchronous-operators")) {
    return false;
  }
  return deferred_copies::is_enabled() &&
      deferred_copies::defer(from, to, step.stream_, step.time_, std::move(step.clock_));
}

void init_allocation(AllocationState& allocation, c10::DeviceIndex device, size_t nbytes) {
  allocation.device = device;
  allocation.nbytes = nbytes;
  allocation.stream = device < 0 ? 0 : current_stream_id(device);
}

void record_allocation(const c10::Storage& storage, const char* op) {
  auto* allocation = is_on() ? allocation_of(storage) : nullptr;
  if (allocation != nullptr) {
    allocation->allocated_by = make_operation(op, allocation->device, allocation->stream);
    // The allocating stream may have used the memory before. Another stream must wait for the work
    // that is enqueued on the allocating stream until now, so the allocation counts as a write.
    const Lock lock(mutex);
    const auto index = index_of_stream(allocation->device, allocation->stream);
    const auto time = sync_with_host(index).clock[index];
    if (time > 0 && allocation->nbytes > 0) {
      add_access(
          *allocation,
          {{0, allocation->nbytes, nullptr}, index, time, true, allocation->allocated_by});
    }
  }
}

bool record_free(AllocationState& allocation) {
  if (!is_on() || allocation.device < 0 || allocation.accesses.empty()) {
    return false;
  }
  std::vector<Access> unsafe;
  {
    const Lock lock(mutex);
    if (allocation.generation != generation) {
      return false;
    }
    auto clock = streams[index_of_stream(allocation.device, allocation.stream)].clock;
    join(clock, host_clock);
    std::copy_if(
        allocation.accesses.begin(), allocation.accesses.end(), std::back_inserter(unsafe),
        [&](const Access& access) { return !is_safe_to_free(allocation, access, clock); });
  }
  if (unsafe.empty()) {
    return false;
  }
  const auto free = make_operation("free", allocation.device, allocation.stream);
  const Lock lock(mutex);
  for (const auto& access : unsafe) {
    add_race(allocation, access, *free, true, true);
  }
  return true;
}

void record_read(AllocationState& allocation, const char* op) {
  if (!is_on() || allocation.device < 0 || allocation.nbytes == 0) {
    return;
  }
  const auto id = current_stream_id(allocation.device);
  auto reader = make_operation(op, allocation.device, id);
  Clock clock;
  {
    const Lock lock(mutex);
    const auto index = index_of_stream(allocation.device, id);
    const auto time = tick(index);
    add_access(
        allocation, {{0, allocation.nbytes, nullptr}, index, time, false, std::move(reader)});
    clock = streams[index].clock;
  }
  deferred_copies::run_ordered_before(clock);
}

void record_stream(AllocationState& allocation, c10::Stream stream) {
  const Lock lock(mutex);
  if (stream.device_index() == allocation.device && stream.id() != allocation.stream) {
    allocation.recorded_streams.push_back(stream.id());
  }
}

EventClock record_event(c10::Stream stream) {
  if (!is_on()) {
    return {};
  }
  const Lock lock(mutex);
  return {generation, sync_with_host(stream).clock};
}

void wait_event(c10::Stream stream, const EventClock& event) {
  const Lock lock(mutex);
  if (is_on() && event.generation == generation) {
    join(sync_with_host(stream).clock, event.clock);
  }
}

void host_waits_for(const EventClock& event) {
  if (!is_on()) {
    return;
  }
  {
    const Lock lock(mutex);
    if (event.generation == generation) {
      join_host_clock(event.clock);
    }
  }
  run_copies_for_host();
}

void host_waits_for(c10::Stream stream) {
  if (!is_on()) {
    return;
  }
  {
    const Lock lock(mutex);
    join_host_clock(sync_with_host(stream).clock);
  }
  run_copies_for_host();
}

void host_waits_for(c10::DeviceIndex device) {
  if (!is_on()) {
    return;
  }
  {
    const Lock lock(mutex);
    for (const auto& stream : streams) {
      if (stream.device == device) {
        join_host_clock(stream.clock);
      }
    }
  }
  run_copies_for_host();
}

}  // namespace sim::races
