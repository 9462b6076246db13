#include "late.h"

#include "sim.h"

#include <ATen/ops/copy_native.h>

#include <algorithm>
#include <mutex>

namespace sim::late {
namespace {

using races::Clock;
using races::Time;

struct Held {
  at::Tensor from, to;
  uint32_t stream;
  Time time;
  Clock clock;
};

// Leaked, as all that an operator needs. Whoever is ordered after a copy waits while another
// thread makes it; nothing below asks for another lock.
auto& mutex = *new std::mutex;
auto& held = *new std::vector<Held>;
std::atomic<size_t> count{0};
std::atomic<bool> on{false};
uint64_t state = 0;
bool holds_all = false;

bool is_known(const Clock& clock, const Held& copy) {
  return copy.stream < clock.size() && clock[copy.stream] >= copy.time;
}

// The copy itself, below the dispatcher: who waits may have modes that are to see nothing of it.
void make(size_t index) {
  const auto copy = std::move(held[index]);
  held.erase(held.begin() + index);
  auto to = copy.to;
  at::native::copy_(to, copy.from, false);
  // Last: who reads that there is none does not wait for the lock.
  count = held.size();
}

// The last due copy that no other due copy has to come before.
std::optional<size_t> next_due(const Clock* clock) {
  const auto due = [&](const Held& copy) { return clock == nullptr || is_known(*clock, copy); };
  for (size_t i = held.size(); i-- > 0;) {
    const bool is_first = std::none_of(held.begin(), held.end(), [&](const Held& other) {
      return &other != &held[i] && is_known(held[i].clock, other);
    });
    if (due(held[i]) && is_first) {
      return i;
    }
  }
  return std::nullopt;
}

void make_due(const Clock* clock) {
  if (count == 0) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  while (const auto index = next_due(clock)) {
    make(*index);
  }
}

// Splitmix: every seed decides otherwise which copies are made at once.
bool is_chosen() {
  state += 0x9e3779b97f4a7c15;
  auto bits = state;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return holds_all || (bits >> 32) % 4 != 0;
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_nested() && tensor.numel() > 0 &&
      !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

void set_seed(std::optional<uint64_t> seed) {
  const std::lock_guard<std::mutex> lock(mutex);
  on = seed.has_value();
  state = seed.value_or(0);
  holds_all = state == 0;
}

bool is_on() noexcept {
  return on.load(std::memory_order_relaxed);
}

bool hold(
    const at::Tensor& from, const at::Tensor& to, uint32_t stream, Time time, Clock clock) {
  if (!is_on() || !is_plain(from) || !is_plain(to)) {
    return false;
  }
  // Ordinary memory of the host is staged: what is written there later is not sent.
  auto source = lasting_view(from);
  source = source.defined() ? source : from.detach().clone();
  auto target = lasting_view(to);
  target = target.defined() ? target : to.detach();
  const std::lock_guard<std::mutex> lock(mutex);
  if (!is_chosen()) {
    return false;
  }
  held.push_back({std::move(source), std::move(target), stream, time, std::move(clock)});
  count = held.size();
  return true;
}

void make_known(const Clock& clock) {
  make_due(&clock);
}

void make_all() {
  make_due(nullptr);
}

}  // namespace sim::late
