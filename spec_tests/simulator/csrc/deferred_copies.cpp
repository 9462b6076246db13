#include "deferred_copies.h"

#include "faults.h"
#include "sim.h"

#include <ATen/ops/copy_native.h>

#include <algorithm>
#include <mutex>

namespace sim::deferred_copies {
namespace {

using races::Clock;
using races::Time;

struct DeferredCopy {
  at::Tensor from, to;
  uint32_t stream;
  Time time;
  Clock clock;
};

// Never destroyed, because threads may outlive this library's variables. A thread holds the mutex
// while it copies, so that a second thread, whose work is ordered after the copy, waits for the
// copy. Code that holds the mutex acquires no other lock.
auto& mutex = *new std::mutex;
auto& deferred = *new std::vector<DeferredCopy>;
std::atomic<size_t> count{0};
std::atomic<bool> enabled{false};
uint64_t random_state = 0;
bool defers_all = false;

bool is_ordered_before(const DeferredCopy& copy, const Clock& clock) {
  return copy.stream < clock.size() && clock[copy.stream] >= copy.time;
}

// Copies below the dispatcher, so that dispatch modes of the waiting thread do not see the copy.
void run(size_t index) {
  const auto copy = std::move(deferred[index]);
  deferred.erase(deferred.begin() + index);
  auto to = copy.to;
  at::native::copy_(to, copy.from, false);
  // `count` is updated after the copy, because a thread that reads 0 does not wait for the mutex.
  count = deferred.size();
}

// Returns the index of the newest deferred copy that may run now: the copy is ordered before
// `clock`, and no other deferred copy is ordered before it. With a null `clock` only the second
// condition counts.
std::optional<size_t> next_due(const Clock* clock) {
  const auto is_due = [&](const DeferredCopy& copy) {
    return clock == nullptr || is_ordered_before(copy, *clock);
  };
  for (size_t i = deferred.size(); i-- > 0;) {
    const bool is_first =
        std::none_of(deferred.begin(), deferred.end(), [&](const DeferredCopy& other) {
          return &other != &deferred[i] && is_ordered_before(other, deferred[i].clock);
        });
    if (is_due(deferred[i]) && is_first) {
      return i;
    }
  }
  return std::nullopt;
}

void run_due(const Clock* clock) {
  if (count == 0) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  while (const auto index = next_due(clock)) {
    run(*index);
  }
}

// Returns whether to defer the next copy, by random numbers of the generator splitmix64.
bool is_chosen() {
  random_state += 0x9e3779b97f4a7c15;
  auto bits = random_state;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return defers_all || (bits >> 32) % 4 != 0;
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_nested() && tensor.numel() > 0 &&
      !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

void set_seed(std::optional<uint64_t> seed) {
  const std::lock_guard<std::mutex> lock(mutex);
  enabled = seed.has_value();
  random_state = seed.value_or(0);
  defers_all = random_state == 0;
}

bool is_enabled() noexcept {
  return enabled.load(std::memory_order_relaxed);
}

bool defer(
    const at::Tensor& from, const at::Tensor& to, uint32_t stream, Time time, Clock clock) {
  if (!is_enabled() || !is_plain(from) || !is_plain(to)) {
    return false;
  }
  // Clones pageable memory now. CUDA stages it, so the copy does not see later writes to it.
  auto source = memory_sharing_view(from);
  if (!source.defined()) {
    source = from.detach();
    source = faults::is_on("pageable-read-late") ? source : source.clone();
  }
  auto target = memory_sharing_view(to);
  target = target.defined() ? target : to.detach();
  const std::lock_guard<std::mutex> lock(mutex);
  if (!is_chosen()) {
    return false;
  }
  deferred.push_back({std::move(source), std::move(target), stream, time, std::move(clock)});
  count = deferred.size();
  return true;
}

void run_ordered_before(const Clock& clock) {
  run_due(&clock);
}

void run_all() {
  run_due(nullptr);
}

}  // namespace sim::deferred_copies
