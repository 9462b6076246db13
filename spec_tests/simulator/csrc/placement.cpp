#include "placement.h"

#include <algorithm>
#include <string>
#include <unordered_set>

namespace sim {
namespace {

// The operators that accept 0-dim CPU tensors on CUDA: PyTorch's list of operators marks them with
// "device_check: NoCheck". Never destroyed, because threads may outlive this library's variables.
const auto& kScalars = *new std::unordered_set<std::string>{
    "__ilshift__", "__irshift__", "__lshift__", "__rshift__", "_fused_adagrad_", "_fused_adam_",
    "_fused_adamw_", "_fused_sgd_", "_index_put_impl_", "add", "addcdiv", "addcmul", "atan2",
    "bernoulli", "binary_cross_entropy", "binomial", "bitwise_and", "bitwise_left_shift",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "clamp", "clamp_max", "clamp_min",
    "copysign", "div", "eq", "fill", "floor_divide", "fmax", "fmin", "fmod", "ge", "gt",
    "heaviside", "hypot", "index", "index_fill", "is_same_size", "is_set_to", "le", "lerp",
    "logical_and", "logical_or", "logical_xor", "lt", "masked_fill", "max", "maximum", "min",
    "minimum", "mse_loss", "mul", "ne", "pow", "remainder", "rsub", "smooth_l1_loss",
    "special_chebyshev_polynomial_t", "special_chebyshev_polynomial_u",
    "special_chebyshev_polynomial_v", "special_chebyshev_polynomial_w",
    "special_hermite_polynomial_h", "special_hermite_polynomial_he",
    "special_laguerre_polynomial_l", "special_legendre_polynomial_p",
    "special_shifted_chebyshev_polynomial_t", "special_shifted_chebyshev_polynomial_u",
    "special_shifted_chebyshev_polynomial_v", "special_shifted_chebyshev_polynomial_w",
    "special_xlog1py", "special_zeta", "sub", "where", "xlogy"};

const auto& kIndices = *new std::unordered_set<std::string>{
    "index", "_index_put_impl_", "index_put", "index_put_", "_unsafe_index",
    "_unsafe_index_put"};

const auto& kMetadataOnly = *new std::unordered_set<std::string>{
    "_coalesced_", "_dimI", "_dimV", "_indices", "_nnz", "_resize_output_",
    "_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors", "_values",
    "dense_dim", "indices", "is_coalesced", "is_same_size", "is_set_to", "resize_", "resize_as_",
    "resize_as_sparse_", "set_", "sparse_dim", "sparse_resize_", "sparse_resize_and_clear_",
    "values"};

// Operators after which CUDA synchronizes with the host: the documentation says so, or the shape of
// the result depends on values.
const auto& kSynchronizing = *new std::unordered_set<std::string>{
    "_unique", "_unique2", "bincount", "equal", "masked_select", "nonzero", "repeat_interleave",
    "unique_consecutive", "unique_dim"};

std::string base_name(const c10::FunctionSchema& schema) {
  return schema.name().substr(schema.name().find("::") + 2);
}

bool contains(const std::unordered_set<std::string>& names, const c10::FunctionSchema& schema) {
  auto name = base_name(schema);
  if (names.count(name) > 0) {
    return true;
  }
  const bool in_place = !name.empty() && name.back() == '_';
  return in_place && names.count(name.substr(0, name.size() - 1)) > 0;
}

}  // namespace

bool accepts_host_scalars(const c10::FunctionSchema& schema) {
  return contains(kScalars, schema);
}

bool accepts_host_indices(const c10::FunctionSchema& schema) {
  return contains(kIndices, schema);
}

bool accesses_no_data(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  const bool is_view = std::any_of(returns.begin(), returns.end(), [](const auto& value) {
    return value.alias_info() != nullptr && !value.alias_info()->isWrite();
  });
  return is_view || kMetadataOnly.count(base_name(schema)) > 0;
}

bool synchronizes_host(const c10::FunctionSchema& schema) {
  return kSynchronizing.count(base_name(schema)) > 0;
}

}  // namespace sim
