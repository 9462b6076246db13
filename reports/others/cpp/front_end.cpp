// Python bindings of torch::nn::parallel, and the C++ counterparts of the modules in test_facts.py.
//
// A CPU build of PyTorch only declares the autograd nodes Scatter and Gather, which data_parallel uses.
// This file defines them; they call the functions `_scatter` and `_gather` of torch._C.

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>

#include <pybind11/stl.h>
#include <torch/extension.h>
#include <torch/nn/parallel/data_parallel.h>

namespace F = torch::nn::functional;
namespace py = pybind11;
using at::Device;
using at::Tensor;

namespace torch::autograd {

// The class of the smart pointer to a node differs between releases of PyTorch.
using NodePtr = decltype(Edge::function);

template <typename NodeType, typename... Args>
static NodePtr make_node(Args&&... args) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<Node>>)
    return std::make_shared<NodeType>(std::forward<Args>(args)...);
  else
    return c10::make_intrusive<NodeType>(std::forward<Args>(args)...);
}

template <typename Result, typename... Args>
static Result call_primitive(const char* name, Args&&... args) {
  py::gil_scoped_acquire gil;
  return py::module_::import("torch._C").attr(name)(std::forward<Args>(args)...).template cast<Result>();
}

Scatter::Scatter(
    std::vector<Device> devices,
    std::optional<std::vector<int64_t>> chunk_sizes,
    int64_t dim,
    std::optional<std::vector<std::optional<at::cuda::CUDAStream>>> streams,
    bool unsqueeze_scalars)
    : devices_(std::move(devices)), chunk_sizes_(std::move(chunk_sizes)), dim_(dim) {
  TORCH_CHECK(!streams && !unsqueeze_scalars, "these nodes have neither streams nor scalars");
}

Scatter::~Scatter() = default;

variable_list Scatter::apply(variable_list&& inputs) {
  TORCH_INTERNAL_ASSERT(inputs.size() == 1);
  const auto& input = inputs.front();
  NodePtr grad_fn;
  if (compute_requires_grad(input)) {
    grad_fn = make_node<Gather>(input.device(), dim_);
    grad_fn->set_next_edges(collect_next_edges(input));
  }
  std::vector<int64_t> ordinals;
  for (const auto& device : devices_)
    ordinals.push_back(device.index());
  auto chunks = call_primitive<variable_list>("_scatter", input, ordinals, chunk_sizes_, dim_, std::optional<int64_t>());
  if (grad_fn)
    set_history(chunks, grad_fn);
  return chunks;
}

Gather::Gather(const Device& destination_device, int64_t dim)
    : destination_device_(destination_device), dim_(dim) {}

Gather::~Gather() = default;

variable_list Gather::apply(variable_list&& inputs) {
  NodePtr grad_fn;
  if (compute_requires_grad(inputs)) {
    std::vector<Device> sources;
    std::vector<int64_t> sizes;
    for (const auto& input : inputs) {
      sources.push_back(input.device());
      sizes.push_back(input.size(dim_));
    }
    grad_fn = make_node<Scatter>(sources, sizes, dim_, std::nullopt, false);
    grad_fn->set_next_edges(collect_next_edges(inputs));
  }
  Tensor joined;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const int64_t ordinal = destination_device_.is_cpu() ? -1 : destination_device_.index();
    joined = call_primitive<Tensor>("_gather", inputs, dim_, ordinal);
  }
  if (grad_fn)
    set_history(joined, grad_fn);
  return {joined};
}

} // namespace torch::autograd

namespace {

using namespace torch::nn;

std::mutex mutex;
std::condition_variable has_ended;
int64_t ended = 0; // Number of calls of end_in_turn that have ended, with or without an error.

// x is (number, code). Waits until this number of calls have ended, and throws an error if the code is negative.
Tensor end_in_turn(const Tensor& x) {
  const auto number = x[0].item<int64_t>(), code = x[1].item<int64_t>();
  std::unique_lock lock(mutex);
  const auto in_turn = has_ended.wait_for(lock, std::chrono::minutes(1), [&] { return ended >= number; });
  TORCH_CHECK(in_turn, "module waited a minute for ", number, " others");
  ++ended;
  has_ended.notify_all();
  TORCH_CHECK_VALUE(code >= 0, "module ", -code, " failed");
  return x;
}

int64_t pop_ended() {
  const std::lock_guard lock(mutex);
  return std::exchange(ended, 0);
}

// A module. Its `kind` selects the children and the forward.
struct Model : Cloneable<Model> {
  explicit Model(std::string kind_) : kind(std::move(kind_)) {
    reset();
  }
  void reset() override;
  Tensor forward(Tensor x) {
    return run(*this, std::move(x));
  }
  // Applies layers `first` to `last - 1` of `body`.
  Tensor run_layers(Tensor x, int64_t first, int64_t last) {
    for (auto layer = body->begin() + first; layer != body->begin() + last; ++layer)
      x = layer->forward<Tensor>(x);
    return x;
  }

  std::string kind;
  Sequential body = nullptr;
  Linear first = nullptr;
  Tensor weight; // The parameter that is also registered in `first`, if any.
  std::function<Tensor(Model&, Tensor)> run;
};

void layers(Model& self) {
  self.body = self.register_module(
      "body", Sequential(Conv2d(2, 3, 3), BatchNorm2d(3), ReLU(), Flatten(), Linear(12, 5)));
  self.run = [](Model& me, Tensor x) { return me.body->forward(x); };
}

void tied(Model& self) {
  self.first = self.register_module("first", Linear(6, 6));
  self.weight = self.register_parameter("again", self.first->weight);
  self.register_buffer("scale", torch::ones({6}).requires_grad_());
  self.run = [](Model& me, Tensor x) {
    return F::linear(me.first->forward(x).tanh() * me.named_buffers()["scale"], me.weight);
  };
}

Tensor current_device(const Tensor& x) {
  const c10::impl::VirtualGuardImpl guard(x.device().type());
  return torch::full({1}, static_cast<double>(guard.getDevice().index()));
}

const std::map<std::string, std::function<void(Model&)>> kinds = {
    {"layers", layers},
    {"tied", tied},
    {"tanh", [](Model& m) { m.run = [](Model&, Tensor x) { return x.tanh(); }; }},
    {"end in turn", [](Model& m) { m.run = [](Model&, Tensor x) { return end_in_turn(x); }; }},
    {"device", [](Model& m) { m.run = [](Model&, Tensor x) { return x.new_full({1}, x.get_device()); }; }},
    {"current device", [](Model& m) { m.run = [](Model&, Tensor x) { return current_device(x); }; }},
};

void Model::reset() {
  kinds.at(kind)(*this);
}

using Models = std::vector<std::shared_ptr<Model>>;
using Devices = std::vector<Device>;

std::map<std::string, Tensor> named(const torch::OrderedDict<std::string, Tensor>& tensors) {
  std::map<std::string, Tensor> result;
  for (const auto& item : tensors)
    result[item.key()] = item.value();
  return result;
}

std::vector<Tensor> parallel_apply(
    Models modules, const std::vector<Tensor>& inputs, const std::optional<Devices>& devices) {
  return parallel::parallel_apply(modules, inputs, devices);
}

} // namespace

// py::mod_gil_not_used: the import of this module must not enable the GIL in free-threaded Python.
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m, py::mod_gil_not_used()) {
  // Release the GIL: replicas run in other threads, and Scatter and Gather acquire it.
  using release = py::call_guard<py::gil_scoped_release>;
  const py::arg_v devices("devices", py::none()), output_device("output_device", py::none());
  py::class_<Model, std::shared_ptr<Model>>(m, "Model")
      .def(py::init<std::string>())
      .def("parameters", [](const Model& self) { return named(self.named_parameters()); })
      .def("buffers", [](const Model& self) { return named(self.named_buffers()); })
      .def("to", [](Model& self, Device device) { self.to(device); }, release())
      .def("run_layers", &Model::run_layers, release())
      .def("__call__", &Model::forward, release());
  m.def(
      "replicate",
      [](const std::shared_ptr<Model>& module, const Devices& devices) {
        return parallel::replicate(module, devices);
      },
      release());
  m.def("parallel_apply", &parallel_apply, py::arg("modules"), py::arg("inputs"), devices, release());
  m.def(
      "data_parallel",
      &parallel::data_parallel<std::shared_ptr<Model>>,
      py::arg("module"),
      py::arg("input"),
      devices,
      output_device,
      py::arg("dim") = 0,
      release());
  m.def("pop_ended", &pop_ended);
}
