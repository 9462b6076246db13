// Features that a run can switch off, because real back ends lack them.

#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

namespace sim::features {

enum class Feature {
  new_streams,  // streams besides the one that each device has
  events,  // events that the host can query, wait for and time
  record_stream,  // Tensor.record_stream
  half_precision,  // float16, bfloat16 and smaller floating types
  double_precision,  // float64
  complex_numbers,
  sparse,  // tensors with a sparse layout
  pinned_memory,
  kept_parameters,  // module.to() moves Parameter objects instead of creating new ones
  count,
};

// Switches the named features off, and all others on.
void set_missing(const std::vector<std::string>& names);
bool has(Feature feature) noexcept;
// Raises an error if the accelerator has no tensors of this dtype.
void check_dtype(c10::ScalarType dtype);

}  // namespace sim::features
