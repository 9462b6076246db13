// Which operators let tensors of the CPU meet tensors of a device.

#pragma once

#include <ATen/core/function_schema.h>

namespace sim {

// CPU tensors of no dimensions.
bool takes_host_scalars(const c10::FunctionSchema& schema);
// An argument named `indices` with CPU tensors in it.
bool takes_host_indices(const c10::FunctionSchema& schema);

// Views, and operators that look at or change shapes only.
bool touches_no_element(const c10::FunctionSchema& schema);
// On CUDA the host waits for the result, because it must know a value or a size.
bool tells_host(const c10::FunctionSchema& schema);

}  // namespace sim
