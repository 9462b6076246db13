// What Python calls.

#include "sim.h"

#include <torch/csrc/utils/pybind.h>

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  sim::register_runtime();
  sim::register_fallbacks();
  m.def("start", &sim::start);
  m.def("device_count", &sim::device_count);
  m.def("current_device", [] { return static_cast<int>(sim::current_device()); });
  m.def("in_bad_fork", &sim::in_bad_fork);
  m.def("default_generator", [](int index) {
    return sim::default_generator(static_cast<c10::DeviceIndex>(index));
  });
}
