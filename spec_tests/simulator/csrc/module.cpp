// The functions that Python calls.

#include "faults.h"
#include "features.h"
#include "races.h"
#include "sim.h"

#include <torch/csrc/utils/pybind.h>

namespace {

namespace py = pybind11;
using sim::races::Operation;
using sim::races::Race;

py::tuple to_python(const Operation& operation, bool writes) {
  return py::make_tuple(
      operation.op, static_cast<int>(operation.device), operation.stream, *operation.thread,
      sim::to_string(operation.location), writes);
}

py::list close_races() {
  py::list races;
  for (const Race& race : sim::races::close()) {
    races.append(py::make_tuple(
        to_python(race.first, race.first_writes), to_python(race.second, race.second_writes),
        race.is_free, static_cast<int>(race.device), race.nbytes,
        race.allocated_by ? py::object(to_python(*race.allocated_by, true)) : py::none()));
  }
  return races;
}

}  // namespace

// Free-threaded Python must not enable the GIL when it imports this module.
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m, py::mod_gil_not_used()) {
  sim::register_runtime();
  sim::register_fallbacks();
  m.def("start", &sim::start);
  m.def("device_count", &sim::device_count);
  m.def("current_device", [] { return static_cast<int>(sim::current_device()); });
  m.def("in_bad_fork", &sim::in_bad_fork);
  m.def("open_races", &sim::races::open, py::arg("late_copies"));
  m.def("close_races", &close_races);
  m.def(
      "set_fault", &sim::faults::set, py::arg("name"), py::arg("device"),
      py::arg("allocations") = 0);
  m.def("set_missing_features", &sim::features::set_missing);
  m.def("default_generator", [](int index) {
    return sim::default_generator(static_cast<c10::DeviceIndex>(index));
  });
}
