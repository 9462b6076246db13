// Happens-before analysis of streams, events and the host, for every byte of device memory.
//
// A step is one operator on one stream. Each stream numbers its steps. The vector clock of a stream
// has, for every stream, the number of the last step that is ordered before the stream's next step.
// All host threads share one clock. It has the steps for which some thread has waited. Two accesses
// to one byte, one of them a write, race if neither is ordered before the other.
//
// Accesses are recorded only inside a `simulator.races` block.

#pragma once

#include "source_location.h"

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

// The clock that a stream had when an event was recorded on it.
struct EventClock {
  uint64_t generation = 0;
  Clock clock;
};

// One step of a stream, or the allocation or the free of memory.
struct Operation {
  const char* op;  // from the operator's schema, or a literal: never freed
  c10::DeviceIndex device;
  c10::StreamId stream;
  const std::string* thread;  // never freed
  SourceLocation location;
};

// The bytes of a tensor within its storage. `layout` is null for a contiguous range.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  struct StridedLayout {
    size_t item_size;
    std::vector<size_t> sizes, strides;  // strides in bytes, in descending order
    bool operator==(const StridedLayout&) const = default;
  };
  std::shared_ptr<const StridedLayout> layout;
};

ByteRange bytes_of(const at::Tensor& tensor);
bool overlap(const ByteRange& a, const ByteRange& b);
bool is_equal(const ByteRange& a, const ByteRange& b);

struct Access {
  ByteRange bytes;
  uint32_t stream;  // index in the table of streams
  Time time;
  bool is_write;
  std::shared_ptr<const Operation> operation;
};

// The recorded accesses to one allocation. The allocator stores it beside the memory.
struct AllocationState {
  c10::DeviceIndex device = -1;  // -1: pinned memory of the host
  c10::StreamId stream = 0;  // the allocating stream; on CUDA it may get the memory again
  size_t nbytes = 0;
  uint64_t generation = 0;
  std::shared_ptr<const Operation> allocated_by;
  std::vector<Access> accesses;
  std::vector<c10::StreamId> recorded_streams;
};

struct Race {
  Operation first, second;
  bool first_writes, second_writes, is_free;
  c10::DeviceIndex device;  // the device of the memory
  size_t nbytes;
  std::shared_ptr<const Operation> allocated_by;
};

extern std::atomic<bool> on;
inline bool is_on() noexcept {
  return on.load(std::memory_order_relaxed);
}

// Opens a `simulator.races` block. Blocks nest: a race is added to the innermost open block.
// `late_copies` is the seed that chooses the deferred copies. Without a seed, no copy is deferred.
void open(std::optional<uint64_t> late_copies);
std::vector<Race> close();

// One operator on the current stream of one device.
class Step {
 public:
  Step(const char* op, c10::DeviceIndex device);
  void reads(const at::Tensor& tensor) {
    record(tensor, false);
  }
  void writes(const at::Tensor& tensor) {
    record(tensor, true);
  }
  // Records a write of a result, unless the result shares memory with an argument.
  void returns(const at::Tensor& tensor);
  void host_waits() const;

 private:
  friend bool record_copy(const at::Tensor&, const at::Tensor&, bool);
  void record(const at::Tensor& tensor, bool is_write);
  void record_memory(const at::Tensor& tensor, bool is_write);

  bool is_current() const;

  std::shared_ptr<const Operation> operation_;
  uint64_t generation_;
  uint32_t stream_;
  Time time_;
  // A copy of the stream's clock at this step, made only if copies are deferred. The clock itself
  // may change before the step ends, because other threads may enqueue work.
  Clock clock_;
  std::vector<const AllocationState*> accessed_;
};

// Records a copy, and the waits between streams that CUDA adds to it. Returns true if
// deferred_copies.h runs the copy later, and false if the caller must copy now.
bool record_copy(const at::Tensor& from, const at::Tensor& to, bool non_blocking);

void init_allocation(AllocationState& allocation, c10::DeviceIndex device, size_t nbytes);
// Records the operation that allocated the memory, for reports.
void record_allocation(const c10::Storage& storage, const char* op);
// Records that the memory is freed. Returns whether another stream may still use it.
bool record_free(AllocationState& allocation);
void record_read(AllocationState& allocation, const char* op);
void record_stream(AllocationState& allocation, c10::Stream stream);

EventClock record_event(c10::Stream stream);
void wait_event(c10::Stream stream, const EventClock& event);
void host_waits_for(const EventClock& event);
void host_waits_for(c10::Stream stream);
void host_waits_for(c10::DeviceIndex device);

}  // namespace sim::races
