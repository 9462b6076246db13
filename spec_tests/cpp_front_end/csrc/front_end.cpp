// Python bindings of torch::nn::parallel, and the C++ counterparts of the modules in modules.py.
//
// A build of PyTorch with CUDA defines the autograd nodes Scatter and Gather. A build without CUDA only
// declares these nodes. With the macro DEFINE_SCATTER_AND_GATHER, this file defines them; the
// definitions call the primitives of torch._C.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include <pybind11/stl.h>
#include <torch/extension.h>
#include <torch/nn/parallel/data_parallel.h>

namespace F = torch::nn::functional;
namespace py = pybind11;
using at::Device;
using at::Tensor;

#ifdef DEFINE_SCATTER_AND_GATHER
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

// Returns the device type for error messages, such as SIM. A build with CUDA always prints CUDA.
static std::string accelerator_name() {
  return c10::DeviceTypeName(at::getAccelerator(/*checked=*/true).value());
}

static py::object primitive(const char* name) {
  return py::module_::import("torch._C").attr(name);
}

Scatter::Scatter(
    std::vector<Device> devices,
    std::optional<std::vector<int64_t>> chunk_sizes,
    int64_t dim,
    std::optional<std::vector<std::optional<at::cuda::CUDAStream>>> streams,
    bool unsqueeze_scalars)
    : devices_(std::move(devices)),
      chunk_sizes_(std::move(chunk_sizes)),
      dim_(dim),
      streams_(std::move(streams)),
      unsqueeze_scalars_(unsqueeze_scalars) {
  TORCH_CHECK(!streams_, "Scatter without CUDA takes no streams");
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

  variable_list chunks;
  {
    py::gil_scoped_acquire gil;
    auto result = primitive("_scatter")(input, ordinals, chunk_sizes_, dim_, py::none());
    chunks = result.cast<variable_list>();
  }
  for (auto& chunk : chunks) {
    TORCH_INTERNAL_ASSERT(!unsqueeze_scalars_ || (chunk.dim() == 1 && chunk.size(0) == 1));
    if (unsqueeze_scalars_)
      chunk = chunk[0];
  }
  if (grad_fn)
    set_history(chunks, grad_fn);
  return chunks;
}

Gather::Gather(const Device& destination_device, int64_t dim)
    : destination_device_(destination_device), dim_(dim) {}

Gather::~Gather() = default;

variable_list Gather::apply(variable_list&& inputs) {
  bool scalars = dim_ == 0;
  for (const auto& input : inputs) {
    TORCH_CHECK(!input.is_cpu(), "All inputs to Gather must be ", accelerator_name(), " tensors, got ", input.toString());
    scalars = scalars && input.dim() == 0;
  }
  NodePtr grad_fn;
  if (compute_requires_grad(inputs)) {
    std::vector<Device> sources;
    std::vector<int64_t> sizes;
    for (const auto& input : inputs) {
      sources.push_back(input.device());
      // For a scalar input, size() raises an IndexError, as in PyTorch's C++ gather.
      sizes.push_back(input.size(dim_));
    }
    grad_fn = make_node<Scatter>(sources, sizes, dim_, std::nullopt, scalars);
    grad_fn->set_next_edges(collect_next_edges(inputs));
  }
  if (scalars) {
    TORCH_WARN(
        "Was asked to gather along dimension 0, but all input tensors were scalars; will instead "
        "unsqueeze and return a vector.");
    for (auto& input : inputs)
      input = input.view({1});
  }
  Tensor joined;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    py::gil_scoped_acquire gil;
    const int64_t ordinal = destination_device_.is_cpu() ? -1 : destination_device_.index();
    joined = primitive("_gather")(inputs, dim_, ordinal).cast<Tensor>();
  }
  if (grad_fn)
    set_history(joined, grad_fn);
  return {joined};
}

} // namespace torch::autograd
#endif

namespace {

using namespace torch::nn;

std::atomic<int> ended_count{0}; // Number of calls of sleep_and_raise that have ended, with or without an error.

// x is a row (ms, code). Sleeps for ms milliseconds, then throws an error if the code is negative.
Tensor sleep_and_raise(const Tensor& x) {
  const auto row = x.cpu().flatten();
  const auto code = row[1].item<int64_t>();
  std::this_thread::sleep_for(std::chrono::milliseconds(row[0].item<int64_t>()));
  ++ended_count;
  TORCH_CHECK_VALUE(code >= 0, "module ", -code, " failed");
  return x;
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
  Tensor tensor; // The parameter or buffer that is registered in this module, if any.
  std::function<Tensor(Model&, Tensor)> run;
};

void sequence(Model& self, Sequential body) {
  self.body = self.register_module("body", std::move(body));
  self.run = [](Model& me, Tensor x) { return me.body->forward(x); };
}

void tied(Model& self) {
  self.first = self.register_module("first", Linear(6, 6));
  self.tensor = self.register_parameter("again", self.first->weight);
  self.run = [](Model& me, Tensor x) {
    return F::linear(me.first->forward(x).tanh(), me.tensor);
  };
}

void scaled(Model& self) {
  self.first = self.register_module("first", Linear(6, 4));
  self.tensor = self.register_buffer("scale", torch::ones({4}).requires_grad_());
  self.run = [](Model& me, Tensor x) {
    // Look the buffer up: clone() replaces the registered buffer, but not the member `tensor`.
    return me.first->forward(x) * me.named_buffers()["scale"];
  };
}

Tensor current_device(Model&, Tensor x) {
  const c10::impl::VirtualGuardImpl guard(c10::impl::VirtualGuardImpl(x.device().type()));
  return torch::full({1}, static_cast<double>(guard.getDevice().index()));
}

const std::map<std::string, std::function<void(Model&)>> kinds = {
    {"linear", [](Model& m) { sequence(m, Sequential(Linear(6, 4))); }},
    {"batch_norm", [](Model& m) { sequence(m, Sequential(BatchNorm2d(2))); }},
    {"layers",
     [](Model& m) {
       sequence(m, Sequential(Conv2d(2, 3, 3), BatchNorm2d(3), ReLU(), Flatten(), Linear(12, 5)));
     }},
    {"tied", tied},
    {"scaled", scaled},
    {"mean", [](Model& m) {
       m.run = [](Model&, Tensor x) { return x.mean(); };
     }},
    {"identity", [](Model& m) {
       m.run = [](Model&, Tensor x) { return x; };
     }},
    {"sleep and raise", [](Model& m) {
       m.run = [](Model&, Tensor x) { return sleep_and_raise(x); };
     }},
    {"current device", [](Model& m) { m.run = current_device; }},
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
  m.def("parallel_apply", &parallel_apply, release());
  m.def("data_parallel", &parallel::data_parallel<std::shared_ptr<Model>>, release());
  m.def("pop_ended_count", [] { return ended_count.exchange(0); });
}
