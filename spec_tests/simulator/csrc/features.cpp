#include "features.h"

#include <c10/util/Exception.h>

#include <array>
#include <map>

namespace sim::features {
namespace {

// Written before the first use of a device.
std::array<bool, static_cast<size_t>(Feature::count)> missing{};

Feature feature_of(c10::ScalarType dtype) {
  if (c10::isComplexType(dtype)) {
    return Feature::complex_numbers;
  }
  return dtype == c10::kDouble ? Feature::double_precision : Feature::half_precision;
}

}  // namespace

void set_missing(const std::vector<std::string>& names) {
  static const auto& kNames = *new std::map<std::string, Feature>{
      {"new-streams", Feature::new_streams},
      {"events", Feature::events},
      {"record-stream", Feature::record_stream},
      {"half-precision", Feature::half_precision},
      {"double-precision", Feature::double_precision},
      {"complex-numbers", Feature::complex_numbers},
      {"sparse", Feature::sparse},
      {"pinned-memory", Feature::pinned_memory},
      {"kept-parameters", Feature::kept_parameters}};
  missing.fill(false);
  for (const auto& name : names) {
    const auto entry = kNames.find(name);
    TORCH_CHECK_VALUE(entry != kNames.end(), "sim has no feature '", name, "'");
    missing.at(static_cast<size_t>(entry->second)) = true;
  }
}

bool has(Feature feature) noexcept {
  return !missing[static_cast<size_t>(feature)];
}

void check_dtype(c10::ScalarType dtype) {
  const bool is_optional =
      (c10::isFloatingType(dtype) && dtype != c10::kFloat) || c10::isComplexType(dtype);
  TORCH_CHECK_TYPE(
      !is_optional || has(feature_of(dtype)), "sim does not support tensors of dtype ", dtype);
}

}  // namespace sim::features
