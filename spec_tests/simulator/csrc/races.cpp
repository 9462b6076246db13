#include "races.h"

#include "late.h"
#include "sim.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace sim::races {
namespace {

// Past this many, the oldest access of a piece of memory is forgotten.
constexpr size_t kMostAccesses = 1024;
// Past this many, a block keeps no further race: one mistake often shows many times.
constexpr size_t kMostRaces = 50;

struct Stream {
  c10::DeviceIndex device;
  c10::StreamId id;
  Clock clock;
  uint64_t host_seen = 0;
};

// Everything below is guarded by the mutex, and leaked: threads may outlive this library. No
// memory of a device is released while it is held, for that asks for it again.
auto& mutex = *new std::mutex;
auto& streams = *new std::vector<Stream>;
auto& places = *new std::map<std::pair<c10::DeviceIndex, c10::StreamId>, uint32_t>;
auto& host = *new Clock;
uint64_t host_version = 1;
// Before an outermost block everything counts as waited for: accesses of former eras are void.
uint64_t era = 0;
struct Block {
  std::vector<Race> races;
  std::optional<uint64_t> late;
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

bool knows(const Clock& clock, const Access& access) {
  return access.stream < clock.size() && clock[access.stream] >= access.time;
}

uint32_t place_of(c10::DeviceIndex device, c10::StreamId id) {
  const auto [found, is_new] =
      places.try_emplace({device, id}, static_cast<uint32_t>(streams.size()));
  if (is_new) {
    streams.push_back({device, id, {}, 0});
    streams.back().clock.resize(streams.size());
  }
  return found->second;
}

// The stream as whoever gives it work now sees it: what the host has waited for is done.
Stream& issue_to(uint32_t place) {
  auto& stream = streams[place];
  if (stream.host_seen != host_version) {
    join(stream.clock, host);
    stream.host_seen = host_version;
  }
  return stream;
}

Stream& issue_to(const c10::Stream& stream) {
  return issue_to(place_of(stream.device_index(), stream.id()));
}

void host_joins(const Clock& clock) {
  join(host, clock);
  ++host_version;
}

void make_late_for_host() {
  if (!late::is_on()) {
    return;
  }
  Clock known;
  {
    const Lock lock(mutex);
    known = host;
  }
  late::make_known(known);
}

bool same_deed(const Deed& one, const Deed& other) {
  return one.op == other.op && one.device == other.device &&
      one.place.code == other.place.code && one.place.instruction == other.place.instruction &&
      one.place.node == other.place.node;
}

void report(const Shadow& shadow, const Access& first, const Deed& second, bool writes, bool is_free) {
  if (blocks.empty()) {
    return;
  }
  auto& races = blocks.back().races;
  const bool known = std::any_of(races.begin(), races.end(), [&](const Race& race) {
    return same_deed(race.first, *first.deed) && same_deed(race.second, second);
  });
  if (!known && races.size() < kMostRaces) {
    races.push_back({*first.deed, second, first.is_write, writes, is_free, shadow.device,
                     shadow.nbytes, shadow.made});
  }
}

void enter_era(Shadow& shadow) {
  if (shadow.era != era) {
    shadow.accesses.clear();
    shadow.era = era;
  }
}

// Whoever is ordered after `later`, or races with it, need not be compared with `earlier`.
bool replaces(const Access& later, const Access& earlier) {
  return later.is_write || !earlier.is_write;
}

// Takes the bytes of `later` away from the access at `index`; tells whether none are left.
bool trim(std::vector<Access>& accesses, size_t index, const Bytes& later) {
  auto& bytes = accesses[index].bytes;
  if (same(bytes, later)) {
    return true;
  }
  if (later.gaps || bytes.gaps) {
    return !later.gaps && later.begin <= bytes.begin && bytes.end <= later.end;
  }
  if (bytes.begin < later.begin && later.end < bytes.end) {
    auto rest = accesses[index];
    rest.bytes.begin = later.end;
    bytes.end = later.begin;
    accesses.push_back(std::move(rest));
    return false;
  }
  if (bytes.begin < later.begin) {
    bytes.end = std::min(bytes.end, later.begin);
  } else {
    bytes.begin = std::max(bytes.begin, later.end);
  }
  return bytes.begin >= bytes.end;
}

void note(Shadow& shadow, Access access) {
  enter_era(shadow);
  auto& accesses = shadow.accesses;
  const auto& clock = streams[access.stream].clock;
  size_t kept = 0;
  const auto before = accesses.size();
  for (size_t i = 0; i < before; ++i) {
    const auto& other = accesses[i];
    bool gone = false;
    if (other.bytes.begin < access.bytes.end && access.bytes.begin < other.bytes.end) {
      if (other.stream == access.stream || knows(clock, other)) {
        gone = replaces(access, other) && trim(accesses, i, access.bytes);
      } else if ((other.is_write || access.is_write) && overlap(other.bytes, access.bytes)) {
        report(shadow, other, *access.deed, access.is_write, false);
      }
    }
    if (!gone) {
      if (kept != i) {
        accesses[kept] = std::move(accesses[i]);
      }
      ++kept;
    }
  }
  accesses.erase(accesses.begin() + kept, accesses.begin() + before);
  accesses.push_back(std::move(access));
  if (accesses.size() > kMostAccesses) {
    accesses.erase(accesses.begin());
  }
}

std::shared_ptr<const Deed> deed(const char* op, c10::DeviceIndex device, c10::StreamId stream) {
  return std::make_shared<const Deed>(Deed{op, device, stream, &this_thread(), this_place()});
}

// Ends a step: the stream's next one is another.
Time tick(uint32_t place) {
  auto& stream = issue_to(place);
  return ++stream.clock[place];
}

bool is_safe_to_free(const Shadow& shadow, const Access& access, const Clock& home) {
  const auto& stream = streams[access.stream];
  const bool same_device = stream.device == shadow.device;
  const auto& recorded = shadow.recorded;
  return (same_device && stream.id == shadow.home) || knows(home, access) ||
      (same_device &&
       std::find(recorded.begin(), recorded.end(), stream.id) != recorded.end());
}

}  // namespace

std::atomic<bool> on{false};

void open(std::optional<uint64_t> late) {
  late::set_seed(late);
  const Lock lock(mutex);
  if (blocks.empty()) {
    ++era;
    streams.clear();
    places.clear();
    host.clear();
    ++host_version;
  }
  blocks.push_back({{}, late});
  on = true;
}

std::vector<Race> close() {
  late::make_all();
  const Lock lock(mutex);
  auto races = std::move(blocks.back().races);
  blocks.pop_back();
  on = !blocks.empty();
  late::set_seed(blocks.empty() ? std::nullopt : blocks.back().late);
  return races;
}

Step::Step(const char* op, c10::DeviceIndex device) {
  const auto id = current_stream_id(device);
  deed_ = deed(op, device, id);
  {
    const Lock lock(mutex);
    era_ = era;
    stream_ = place_of(device, id);
    time_ = tick(stream_);
    known_ = late::is_on() ? streams[stream_].clock : Clock();
  }
  late::make_known(known_);
}

// A step outlasts its block where a thread has been left behind.
bool Step::is_current() const {
  return era_ == era;
}

void Step::touch(const at::Tensor& tensor, bool is_write) {
  if (!tensor.defined()) {
    return;
  }
  if (tensor.is_sparse()) {
    const auto* impl = static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
    touch_memory(impl->indices(), is_write);
    touch_memory(impl->values(), is_write);
  } else if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto* impl = static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
    for (const auto& part : {impl->compressed_indices(), impl->plain_indices(), impl->values()}) {
      touch_memory(part, is_write);
    }
  } else if (tensor.layout() == c10::kStrided) {
    touch_memory(tensor, is_write);
  }
}

void Step::touch_memory(const at::Tensor& tensor, bool is_write) {
  auto* shadow = tensor.has_storage() ? shadow_of(tensor.storage()) : nullptr;
  if (shadow == nullptr) {
    return;
  }
  met_.push_back(shadow);
  auto bytes = bytes_of(tensor);
  const Lock lock(mutex);
  if (bytes.begin < bytes.end && is_current()) {
    note(*shadow, {std::move(bytes), stream_, time_, is_write, deed_});
  }
}

void Step::makes(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || !tensor.has_storage()) {
    touch(tensor, true);
    return;
  }
  auto* shadow = shadow_of(tensor.storage());
  if (shadow != nullptr && std::find(met_.begin(), met_.end(), shadow) == met_.end()) {
    {
      const Lock lock(mutex);
      shadow->made = shadow->made ? shadow->made : deed_;
    }
    touch_memory(tensor, true);
  }
}

void Step::host_waits() const {
  {
    const Lock lock(mutex);
    if (is_current()) {
      host_joins(streams[stream_].clock);
    }
  }
  make_late_for_host();
}

bool copies(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (!is_on()) {
    return false;
  }
  const bool from_device = from.device().type() == kSim;
  const bool to_device = to.device().type() == kSim;
  const auto index = (from_device ? from : to).device().index();
  const bool peers = from_device && to_device && from.device() != to.device();
  const auto receiver = c10::Stream(
      c10::Stream::UNSAFE, c10::Device(kSim, to_device ? to.device().index() : index),
      current_stream_id(to_device ? to.device().index() : index));
  // 1. Between two devices the source's stream first waits for the receiver's ...
  if (peers) {
    const Lock lock(mutex);
    const auto clock = issue_to(receiver).clock;
    join(issue_to(place_of(index, current_stream_id(index))).clock, clock);
  }
  Step step("aten::copy_", index);
  step.reads(from);
  step.writes(to);
  // 2. ... and afterwards the receiver's for the source's.
  if (peers) {
    const Lock lock(mutex);
    if (step.is_current()) {
      const auto clock = streams[step.stream_].clock;
      join(issue_to(receiver).clock, clock);
    }
  }
  // 3. The host goes on at once if asked to. CUDA may wait for ordinary memory of the host all the
  //    same, but no program can count on it.
  if (!non_blocking && !(from_device && to_device)) {
    step.host_waits();
    return false;
  }
  return late::is_on() && late::hold(from, to, step.stream_, step.time_, std::move(step.known_));
}

void memory_made(Shadow& shadow, c10::DeviceIndex device, size_t nbytes) {
  shadow.device = device;
  shadow.nbytes = nbytes;
  shadow.home = device < 0 ? 0 : current_stream_id(device);
}

void name_maker(const c10::Storage& storage, const char* op) {
  auto* shadow = is_on() ? shadow_of(storage) : nullptr;
  if (shadow != nullptr) {
    shadow->made = deed(op, shadow->device, shadow->home);
    // The memory may be any that its stream has used before: who uses it elsewhere is to wait for
    // what that stream was given until now.
    const Lock lock(mutex);
    const auto place = place_of(shadow->device, shadow->home);
    const auto time = issue_to(place).clock[place];
    if (time > 0 && shadow->nbytes > 0) {
      note(*shadow, {{0, shadow->nbytes, nullptr}, place, time, true, shadow->made});
    }
  }
}

bool memory_freed(Shadow& shadow) {
  if (!is_on() || shadow.device < 0 || shadow.accesses.empty()) {
    return false;
  }
  std::vector<Access> unsafe;
  {
    const Lock lock(mutex);
    if (shadow.era != era) {
      return false;
    }
    const auto& home = issue_to(place_of(shadow.device, shadow.home)).clock;
    std::copy_if(
        shadow.accesses.begin(), shadow.accesses.end(), std::back_inserter(unsafe),
        [&](const Access& access) { return !is_safe_to_free(shadow, access, home); });
  }
  if (unsafe.empty()) {
    return false;
  }
  const auto end = deed("free", shadow.device, shadow.home);
  const Lock lock(mutex);
  for (const auto& access : unsafe) {
    report(shadow, access, *end, true, true);
  }
  return true;
}

void memory_read(Shadow& shadow, const char* op) {
  if (!is_on() || shadow.device < 0 || shadow.nbytes == 0) {
    return;
  }
  const auto id = current_stream_id(shadow.device);
  auto reader = deed(op, shadow.device, id);
  Clock known;
  {
    const Lock lock(mutex);
    const auto place = place_of(shadow.device, id);
    const auto time = tick(place);
    note(shadow, {{0, shadow.nbytes, nullptr}, place, time, false, std::move(reader)});
    known = streams[place].clock;
  }
  late::make_known(known);
}

void record_stream(Shadow& shadow, c10::Stream stream) {
  const Lock lock(mutex);
  if (stream.device_index() == shadow.device && stream.id() != shadow.home) {
    shadow.recorded.push_back(stream.id());
  }
}

Moment record_event(c10::Stream stream) {
  if (!is_on()) {
    return {};
  }
  const Lock lock(mutex);
  return {era, issue_to(stream).clock};
}

void wait_event(c10::Stream stream, const Moment& event) {
  const Lock lock(mutex);
  if (is_on() && event.era == era) {
    join(issue_to(stream).clock, event.clock);
  }
}

void host_waits_for(const Moment& event) {
  if (!is_on()) {
    return;
  }
  {
    const Lock lock(mutex);
    if (event.era == era) {
      host_joins(event.clock);
    }
  }
  make_late_for_host();
}

void host_waits_for(c10::Stream stream) {
  if (!is_on()) {
    return;
  }
  {
    const Lock lock(mutex);
    host_joins(issue_to(stream).clock);
  }
  make_late_for_host();
}

void host_waits_for(c10::DeviceIndex device) {
  if (!is_on()) {
    return;
  }
  {
    const Lock lock(mutex);
    for (const auto& stream : streams) {
      if (stream.device == device) {
        join(host, stream.clock);
      }
    }
    ++host_version;
  }
  make_late_for_host();
}

}  // namespace sim::races
