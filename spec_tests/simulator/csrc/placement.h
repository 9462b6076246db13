// Properties of operators: accepted host tensors, and synchronization with the host.

#pragma once

#include <ATen/core/function_schema.h>

namespace sim {

// Returns whether the operator accepts 0-dim CPU tensors together with sim tensors.
bool accepts_host_scalars(const c10::FunctionSchema& schema);
// Returns whether the operator's argument `indices` may contain CPU tensors.
bool accepts_host_indices(const c10::FunctionSchema& schema);

// Returns whether the operator is a view, or reads and changes only metadata.
bool accesses_no_data(const c10::FunctionSchema& schema);
// Returns whether the host waits for the operator on CUDA, to read a value or the result's size.
bool synchronizes_host(const c10::FunctionSchema& schema);

}  // namespace sim
