// What Python calls.

#include "faults.h"
#include "races.h"
#include "sim.h"

#include <torch/csrc/utils/pybind.h>

namespace {

namespace py = pybind11;
using sim::races::Deed;
using sim::races::Race;

py::tuple deed_to_python(const Deed& deed, bool writes) {
  return py::make_tuple(
      deed.op, static_cast<int>(deed.device), deed.stream, *deed.thread, sim::text_of(deed.place),
      writes);
}

py::list close_races() {
  py::list found;
  for (const Race& race : sim::races::close()) {
    found.append(py::make_tuple(
        deed_to_python(race.first, race.first_writes),
        deed_to_python(race.second, race.second_writes), race.is_free,
        static_cast<int>(race.memory), race.nbytes,
        race.made ? py::object(deed_to_python(*race.made, true)) : py::none()));
  }
  return found;
}

}  // namespace

// Where Python has no interpreter lock, importing this must not bring it back.
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m, py::mod_gil_not_used()) {
  sim::register_runtime();
  sim::register_fallbacks();
  m.def("start", &sim::start);
  m.def("device_count", &sim::device_count);
  m.def("current_device", [] { return static_cast<int>(sim::current_device()); });
  m.def("in_bad_fork", &sim::in_bad_fork);
  m.def("open_races", &sim::races::open, py::arg("late"));
  m.def("close_races", &close_races);
  m.def("set_fault", &sim::faults::set);
  m.def("default_generator", [](int index) {
    return sim::default_generator(static_cast<c10::DeviceIndex>(index));
  });
}
