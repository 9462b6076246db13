// torch.histc of integers, which CUDA supports and the CPU does not. Mixture-of-experts models use
// it.

#include "sim.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace sim {
namespace {

using at::Scalar;
using at::Tensor;

Tensor float_histogram(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::histc", "");
  torch::jit::Stack stack{self, bins, min, max};
  call_on_host(op, &stack);
  return stack.back().toTensor();
}

// Computes the histogram as CUDA does. If low == high, the smallest and largest element are the
// bounds. The last bin includes its upper bound. The result has the dtype of the data.
Tensor integer_histogram(const Tensor& self, int64_t bins, int64_t low, int64_t high) {
  TORCH_CHECK(bins > 0, "bins must be > 0");
  if (low == high && self.numel() > 0) {
    low = self.min().item().toLong();
    high = self.max().item().toLong();
  }
  if (low == high) {
    --low;
    ++high;
  }
  TORCH_CHECK(low < high, "max must be larger than min");
  const auto values = self.reshape(-1).to(at::kLong);
  const auto inside = values.masked_select((values >= low).logical_and(values <= high));
  const auto bin = (inside - low).mul(bins).div(high - low, "floor").clamp_max(bins - 1);
  return at::bincount(bin, {}, bins).to(self.scalar_type());
}

Tensor histc_kernel(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
  return at::isIntegralType(self.scalar_type(), /*includeBool=*/false)
      ? integer_histogram(self, bins, min.to<int64_t>(), max.to<int64_t>())
      : float_histogram(self, bins, min, max);
}

Tensor& histc_out(
    const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max, Tensor& out) {
  out.resize_({bins});
  return out.copy_(histc_kernel(self, bins, min, max));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("histc", &histc_kernel);
  m.impl("histc.out", &histc_out);
}

}  // namespace sim
