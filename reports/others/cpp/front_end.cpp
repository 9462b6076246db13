// Python bindings of torch::nn::parallel, and the C++ counterparts of the modules in test_facts.py.
//
// A CPU build of PyTorch only declares the autograd nodes Scatter and Gather, which data_parallel uses.
// This file defines them; they call the functions `_scatter` and `_gather` of torch._C.

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/extension.h>
#include <torch/nn/parallel/data_parallel.h>

namespace F = torch::nn::functional;
namespace py = pybind11;
using at::Device;
using at::Tensor;

namespace torch::autograd {

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
  const auto& input = inputs.front();
  c10::intrusive_ptr<Node> grad_fn;
  if (compute_requires_grad(input)) {
    grad_fn = c10::make_intrusive<Gather>(input.device(), dim_);
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
  c10::intrusive_ptr<Node> grad_fn;
  if (compute_requires_grad(inputs)) {
    std::vector<Device> sources;
    std::vector<int64_t> sizes;
    for (const auto& input : inputs) {
      sources.push_back(input.device());
      sizes.push_back(input.size(dim_));
    }
    grad_fn = c10::make_intrusive<Scatter>(sources, sizes, dim_, std::nullopt, false);
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

// A module. Its `kind` selects the children. A module without children calls a function of Python.
struct Model : Cloneable<Model> {
  Model(std::string kind_, std::function<Tensor(Tensor)> call_)
      : kind(std::move(kind_)), call(std::move(call_)) {
    reset();
  }
  void reset() override {
    if (kind == "layers")
      body = register_module(
          "0", Sequential(Conv2d(2, 3, 3), BatchNorm2d(3), ReLU(), Flatten(), Linear(12, 5)));
    if (kind == "tied") {
      first = register_module("first", Linear(6, 6));
      register_parameter("again", first->weight);
      register_buffer("scale", torch::ones({6}).requires_grad_());
    }
  }
  Tensor forward(Tensor x) {
    if (kind == "layers")
      return run_layers(x, 0, 5);
    if (kind == "tied")
      return F::linear(first->forward(x).tanh() * named_buffers()["scale"], named_parameters()["again"]);
    return call(x);
  }
  // Applies layers `begin` to `end - 1` of `body`.
  Tensor run_layers(Tensor x, int64_t begin, int64_t end) {
    for (auto layer = body->begin() + begin; layer != body->begin() + end; ++layer)
      x = layer->forward<Tensor>(x);
    return x;
  }
  std::map<std::string, Tensor> tensors() const {
    std::map<std::string, Tensor> found;
    for (const auto& tensors : {named_parameters(), named_buffers()})
      for (const auto& item : tensors)
        found[item.key()] = item.value();
    return found;
  }

  std::string kind;
  std::function<Tensor(Tensor)> call;
  Sequential body = nullptr;
  Linear first = nullptr;
};

} // namespace

// py::mod_gil_not_used: the import of this module must not enable the GIL in free-threaded Python.
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m, py::mod_gil_not_used()) {
  using Pointer = std::shared_ptr<Model>;
  using Devices = std::vector<Device>;
  // Release the GIL: replicas run in other threads, and Scatter and Gather acquire it.
  using release = py::call_guard<py::gil_scoped_release>;
  py::class_<Model, Pointer>(m, "Model")
      .def(py::init<std::string, std::function<Tensor(Tensor)>>())
      .def("tensors", &Model::tensors)
      .def("to", [](Pointer self, Device device) { return self->to(device), self; }, release())
      .def("run_layers", &Model::run_layers, release())
      .def("__call__", &Model::forward, release());
  m.def("replicate", [](Pointer module, Devices on) { return parallel::replicate(module, on); }, release());
  m.def("parallel_apply", &parallel::parallel_apply<Pointer>, release());
  m.def("data_parallel", &parallel::data_parallel<Pointer>, release());
}
