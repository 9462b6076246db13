// Properties of operators: accepted host tensors, and synchronization with the host.

#pragma once

#include <ATen/core/function_schema.h>

namespace sim {

// Whether 0-dim CPU tensors are accepted beside sim tensors.
bool accepts_host_scalars(const c10::FunctionSchema& schema);
// Whether the argument `indices` may contain CPU tensors.
bool accepts_host_indices(const c10::FunctionSchema& schema);

// Whether the operator is a view, or reads and changes only metadata.
bool accesses_no_data(const c10::FunctionSchema& schema);
// Whether the host waits for the result on CUDA, because it needs a value or a size.
bool synchronizes_host(const c10::FunctionSchema& schema);

}  // namespace sim
