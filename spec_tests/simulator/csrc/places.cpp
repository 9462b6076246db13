#include "places.h"

#include <Python.h>
#include <pthread.h>
#include <torch/csrc/autograd/function.h>

#include <mutex>
#include <optional>
#include <typeindex>
#include <unordered_map>
#include <unordered_set>

namespace sim {
namespace {

// Leaked: places outlive the frames that they come from. Nothing of Python runs under the mutex,
// so nobody waits for it who keeps others from running Python.
auto& outside_torch_mutex = *new std::mutex;
auto& outside_torch = *new std::unordered_map<PyCodeObject*, bool>;
using Lock = std::lock_guard<std::mutex>;

std::optional<bool> known_outside_torch(PyCodeObject* code) {
  const Lock lock(outside_torch_mutex);
  const auto known = outside_torch.find(code);
  return known == outside_torch.end() ? std::nullopt : std::make_optional(known->second);
}

bool is_outside_torch(PyCodeObject* code) {
  if (const auto known = known_outside_torch(code)) {
    return *known;
  }
  const char* path = PyUnicode_AsUTF8(code->co_filename);
  const std::string file = path == nullptr ? "" : path;
  const bool outside = file.find("/torch/") == std::string::npos && file.rfind('<', 0) != 0;
  const bool is_new = [&] {
    const Lock lock(outside_torch_mutex);
    return outside_torch.emplace(code, outside).second;
  }();
  if (is_new) {
    Py_INCREF(code);  // Its address must not become another's.
  }
  return outside;
}

class Interpreter {
 public:
  Interpreter() : state_(PyGILState_Ensure()) {}
  ~Interpreter() {
    PyGILState_Release(state_);
  }
  // Threads that never ran Python have no frames, and must not be given any.
  static bool knows_this_thread() {
    return Py_IsInitialized() && PyGILState_GetThisThreadState() != nullptr;
  }

 private:
  PyGILState_STATE state_;
};

void find_frame(Place& place) {
  const Interpreter lock;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const bool found = is_outside_torch(code);
    Py_DECREF(code);
    if (found) {
      place.code = code;
      place.instruction = PyFrame_GetLasti(frame);
      Py_DECREF(frame);
      return;
    }
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
}

// Asking a node for its name is slow, and every node of a class has the same.
std::string name_of(const torch::autograd::Node& node) {
  static thread_local std::unordered_map<std::type_index, std::string> names;
  auto& name = names[std::type_index(typeid(node))];
  if (name.empty()) {
    name = node.name();
  }
  return name;
}

std::string native_name() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

std::string python_name() {
  const Interpreter lock;
  PyObject* threading = PyImport_ImportModule("threading");
  PyObject* active = PyObject_GetAttrString(threading, "_active");
  PyObject* ident = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
  PyObject* thread = PyObject_GetItem(active, ident);  // Not borrowed: others change the mapping.
  std::string name;
  if (thread != nullptr) {
    PyObject* text = PyObject_GetAttrString(thread, "name");
    name = text == nullptr ? "" : PyUnicode_AsUTF8(text);
    Py_XDECREF(text);
    Py_DECREF(thread);
  } else {
    name = native_name();
  }
  Py_DECREF(ident);
  Py_DECREF(active);
  Py_DECREF(threading);
  PyErr_Clear();
  return name;
}

// There are few names of threads, and many threads.
const std::string* kept(std::string name) {
  static auto& mutex = *new std::mutex;
  static auto& names = *new std::unordered_set<std::string>;
  const Lock lock(mutex);
  return &*names.insert(std::move(name)).first;
}

}  // namespace

Place this_place() {
  Place place;
  if (Interpreter::knows_this_thread()) {
    find_frame(place);
  }
  if (place.code == nullptr) {
    if (const auto node = torch::autograd::get_current_node()) {
      place.node = name_of(*node);
    }
  }
  return place;
}

const std::string& this_thread() {
  static thread_local const std::string* name = nullptr;
  if (name == nullptr) {
    name = kept(Interpreter::knows_this_thread() ? python_name() : native_name());
  }
  return *name;
}

std::string text_of(const Place& place) {
  if (place.code == nullptr) {
    return place.node.empty() ? "outside Python" : "backward of " + place.node;
  }
  const Interpreter lock;
  auto* code = static_cast<PyCodeObject*>(place.code);
  const char* path = PyUnicode_AsUTF8(code->co_filename);
  const char* function = PyUnicode_AsUTF8(code->co_name);
  const int line = PyCode_Addr2Line(code, place.instruction);
  return std::string(path) + ":" + std::to_string(line) + " in " + function;
}

}  // namespace sim
