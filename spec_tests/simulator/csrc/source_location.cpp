#include "source_location.h"

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

// For each code object: whether its file is outside torch. Both variables are never destroyed,
// because threads may outlive this library. No Python code runs while the mutex is held, so a
// thread that holds the GIL can acquire it without a deadlock.
auto& outside_torch_mutex = *new std::mutex;
auto& outside_torch = *new std::unordered_map<PyCodeObject*, bool>;
using Lock = std::lock_guard<std::mutex>;

std::optional<bool> find_outside_torch(PyCodeObject* code) {
  const Lock lock(outside_torch_mutex);
  const auto entry = outside_torch.find(code);
  return entry == outside_torch.end() ? std::nullopt : std::make_optional(entry->second);
}

bool is_outside_torch(PyCodeObject* code) {
  if (const auto cached = find_outside_torch(code)) {
    return *cached;
  }
  const char* path = PyUnicode_AsUTF8(code->co_filename);
  const std::string file = path == nullptr ? "" : path;
  const bool outside = file.find("/torch/") == std::string::npos && file.rfind('<', 0) != 0;
  const bool is_new = [&] {
    const Lock lock(outside_torch_mutex);
    return outside_torch.emplace(code, outside).second;
  }();
  if (is_new) {
    Py_INCREF(code);  // The address of `code` is the key, so `code` must stay alive.
  }
  return outside;
}

class GilGuard {
 public:
  GilGuard() : state_(PyGILState_Ensure()) {}
  ~GilGuard() {
    PyGILState_Release(state_);
  }
  // Returns whether this thread has run Python code. Other threads have no Python frames, and
  // asking for a frame must not create a PyThreadState for them.
  static bool is_python_thread() {
    return Py_IsInitialized() && PyGILState_GetThisThreadState() != nullptr;
  }

 private:
  PyGILState_STATE state_;
};

void find_frame(SourceLocation& location) {
  const GilGuard gil;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const bool found = is_outside_torch(code);
    Py_DECREF(code);
    if (found) {
      location.code = code;
      location.instruction = PyFrame_GetLasti(frame);
      Py_DECREF(frame);
      return;
    }
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
}

// Caches names by class: Node::name() is slow, and all nodes of a class have the same name.
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
  const GilGuard gil;
  PyObject* threading = PyImport_ImportModule("threading");
  PyObject* active = PyObject_GetAttrString(threading, "_active");
  PyObject* ident = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
  // PyObject_GetItem returns a new reference. A borrowed one may become invalid, because other
  // threads change the mapping.
  PyObject* thread = PyObject_GetItem(active, ident);
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

// Returns a pointer to a copy of `name` that is never freed. Equal names share one copy.
const std::string* intern(std::string name) {
  static auto& mutex = *new std::mutex;
  static auto& names = *new std::unordered_set<std::string>;
  const Lock lock(mutex);
  return &*names.insert(std::move(name)).first;
}

}  // namespace

SourceLocation current_location() {
  SourceLocation location;
  if (GilGuard::is_python_thread()) {
    find_frame(location);
  }
  if (location.code == nullptr) {
    if (const auto node = torch::autograd::get_current_node()) {
      location.node = name_of(*node);
    }
  }
  return location;
}

const std::string& current_thread_name() {
  static thread_local const std::string* name = nullptr;
  if (name == nullptr) {
    name = intern(GilGuard::is_python_thread() ? python_name() : native_name());
  }
  return *name;
}

std::string to_string(const SourceLocation& location) {
  if (location.code == nullptr) {
    return location.node.empty() ? "outside Python" : "backward of " + location.node;
  }
  const GilGuard gil;
  auto* code = static_cast<PyCodeObject*>(location.code);
  const char* path = PyUnicode_AsUTF8(code->co_filename);
  const char* function = PyUnicode_AsUTF8(code->co_name);
  const int line = PyCode_Addr2Line(code, location.instruction);
  return std::string(path) + ":" + std::to_string(line) + " in " + function;
}

}  // namespace sim
