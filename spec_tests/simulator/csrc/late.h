// Copies that are made as late as their order allows, so that who does not wait reads the pattern.

#pragma once

#include "races.h"

#include <optional>

namespace sim::late {

// Copies are held back while a seed is set: all with seed 0, most with another one.
void set_seed(std::optional<uint64_t> seed);
bool is_on() noexcept;

// Keeps the copy for later, or returns false: then it is to be made now. `clock` is that of its
// stream after it.
bool hold(
    const at::Tensor& from, const at::Tensor& to, uint32_t stream, races::Time time,
    races::Clock clock);

// Makes the copies that someone with this clock is ordered after; of two that nothing orders the
// one that was asked for last comes first.
void make_known(const races::Clock& clock);
void make_all();

}  // namespace sim::late
