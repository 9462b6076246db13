// Happens-before over host, streams and events, for every byte of the devices' memory.
//
// Each stream counts its steps, and knows of every other stream the last step that is ordered
// before its own next one: a vector clock. The host has one, too, which all threads share: the
// steps that some thread has waited for. Two accesses to one byte, one of them a write, race
// where neither step is known to the stream of the other.
//
// Nothing is followed while no block is open; then every function here returns at once.

#pragma once

#include "places.h"

#include <ATen/core/TensorBody.h>
#include <ATen/core/function_schema.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace sim::races {

using Time = uint32_t;
using Clock = std::vector<Time>;

// What a stream knew when an event was recorded on it, in the blocks open at that time.
struct Moment {
  uint64_t era = 0;
  Clock clock;
};

// Who did what where: one step of one stream, or the end of a piece of memory.
struct Deed {
  const char* op;  // Of the operator's schema, or a literal: never freed
  c10::DeviceIndex device;
  c10::StreamId stream;
  const std::string* thread;  // never freed
  Place place;
};

// The bytes of a tensor within its storage. Only one with gaps says where they are.
struct Bytes {
  size_t begin = 0;
  size_t end = 0;
  struct Gaps {
    size_t item;
    std::vector<size_t> sizes, strides;  // strides in bytes, falling
    bool operator==(const Gaps&) const = default;
  };
  std::shared_ptr<const Gaps> gaps;
};

Bytes bytes_of(const at::Tensor& tensor);
bool overlap(const Bytes& one, const Bytes& other);
bool same(const Bytes& one, const Bytes& other);

struct Access {
  Bytes bytes;
  uint32_t stream;  // its place in the table of streams
  Time time;
  bool is_write;
  std::shared_ptr<const Deed> deed;
};

// What is known of one piece of memory, in which its allocator keeps it.
struct Shadow {
  c10::DeviceIndex device = -1;  // -1: pinned memory of the host
  c10::StreamId home = 0;  // The stream that allocated it, and may get it again
  size_t nbytes = 0;
  uint64_t era = 0;
  std::shared_ptr<const Deed> made;
  std::vector<Access> accesses;
  std::vector<c10::StreamId> recorded;
};

struct Race {
  Deed first, second;
  bool first_writes, second_writes, is_free;
  c10::DeviceIndex memory;
  size_t nbytes;
  std::shared_ptr<const Deed> made;
};

extern std::atomic<bool> on;
inline bool is_on() noexcept {
  return on.load(std::memory_order_relaxed);
}

// Blocks nest; a race belongs to the innermost block that is open when it is found.
// With a seed, late.h holds copies back in the block.
void open(std::optional<uint64_t> late);
std::vector<Race> close();

// One operator on the current stream of one device.
class Step {
 public:
  Step(const char* op, c10::DeviceIndex device);
  void reads(const at::Tensor& tensor) {
    touch(tensor, false);
  }
  void writes(const at::Tensor& tensor) {
    touch(tensor, true);
  }
  // Memory that no argument of the operator has.
  void makes(const at::Tensor& tensor);
  void host_waits() const;

 private:
  friend bool copies(const at::Tensor&, const at::Tensor&, bool);
  void touch(const at::Tensor& tensor, bool is_write);
  void touch_memory(const at::Tensor& tensor, bool is_write);

  bool is_current() const;

  std::shared_ptr<const Deed> deed_;
  uint64_t era_;
  uint32_t stream_;
  Time time_;
  // With late copies, what the stream knew then: another thread may give it work meanwhile.
  Clock known_;
  std::vector<const Shadow*> met_;
};

// A copy, ordered as CUDA orders it. Tells whether it will be made later, by late.h.
bool copies(const at::Tensor& from, const at::Tensor& to, bool non_blocking);

void memory_made(Shadow& shadow, c10::DeviceIndex device, size_t nbytes);
// Notes who made the memory, for reports.
void name_maker(const c10::Storage& storage, const char* op);
// Tells whether somebody may still use it.
bool memory_freed(Shadow& shadow);
void memory_read(Shadow& shadow, const char* op);
void record_stream(Shadow& shadow, c10::Stream stream);

Moment record_event(c10::Stream stream);
void wait_event(c10::Stream stream, const Moment& event);
void host_waits_for(const Moment& event);
void host_waits_for(c10::Stream stream);
void host_waits_for(c10::DeviceIndex device);

}  // namespace sim::races
