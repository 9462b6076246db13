// Copies that run as late as their ordering allows, so that a missing wait changes the result.

#pragma once

#include "races.h"

#include <optional>

namespace sim::deferred_copies {

// Copies are deferred while a seed is set. Seed 0 defers all copies; any other seed defers three in
// four copies at random.
void set_seed(std::optional<uint64_t> seed);
bool is_enabled() noexcept;

// Defers the copy and returns true, or returns false if the caller must copy now. `clock` is the
// clock of the copy's stream after the copy.
bool defer(
    const at::Tensor& from, const at::Tensor& to, uint32_t stream, races::Time time,
    races::Clock clock);

// Runs the deferred copies that are ordered before `clock`. Copies without an order between them
// run in the reverse of the order in which they were issued.
void run_ordered_before(const races::Clock& clock);
void run_all();

}  // namespace sim::deferred_copies
