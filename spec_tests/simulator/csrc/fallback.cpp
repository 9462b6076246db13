// Every operator without a kernel of its own: the CPU's kernel, run over the same memory.
//
//   1. find the one device that the arguments are on, or refuse
//   2. replace each sim tensor by a CPU tensor over its memory: a host view
//   3. run the CPU kernel
//   4. pass on what it did to sizes, strides and storages of its arguments
//   5. turn its results into sim tensors: an argument, an alias of one, or new memory

#include "host_views.h"
#include "placement.h"
#include "races.h"

#include <ATen/Config.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <iterator>

#if AT_PARALLEL_OPENMP
// Declared here, because <omp.h> needs a compiler flag that nothing else here needs.
extern "C" void omp_set_num_threads(int count);
#endif

namespace sim {
namespace {

// Makes the CPU kernels that this thread calls compute in this thread alone. Otherwise every
// thread that issues work would own an OpenMP pool. When there are more pools than cores, OpenMP's
// threads sleep between two operators, and waking them takes longer than a small operator.
class OneHostThread {
 public:
#if AT_PARALLEL_OPENMP
  // PyTorch sets a thread's number when it is first asked for, so it is asked for here.
  OneHostThread() : before_(at::get_num_threads()) { omp_set_num_threads(1); }
  ~OneHostThread() { omp_set_num_threads(before_); }

 private:
  int before_;
#endif
};

using c10::DispatchKey;
using c10::IValue;
using torch::jit::Stack;

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool is_optional_generator(const c10::Argument& argument) {
  const auto& type = argument.type();
  return type->kind() == c10::TypeKind::OptionalType &&
      type->castRaw<c10::OptionalType>()->getElementType()->kind() ==
      c10::TypeKind::GeneratorType;
}

bool is_like(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name(), suffix = "_like";
  return name.size() > suffix.size() && name.substr(name.size() - suffix.size()) == suffix;
}

// Libraries whose schemas say truly what is written and what is returned. torchvision's operators
// have kernels for the devices that its authors know.
bool is_known(const std::string& name) {
  constexpr std::array<std::string_view, 3> libraries = {"aten::", "prims::", "torchvision::"};
  return std::any_of(libraries.begin(), libraries.end(), [&](std::string_view library) {
    return name.compare(0, library.size(), library) == 0;
  });
}

template <typename F>
void each_tensor(const IValue& value, F&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const IValue& item : value.toListRef()) {
      each_tensor(item, visit);
    }
  }
}

// The same value with every tensor replaced.
template <typename F>
IValue map_tensors(const IValue& value, F&& replace) {
  if (value.isTensor()) {
    return replace(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorList()) {
      list.push_back(replace(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      list.push_back(tensor ? std::make_optional(replace(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

// One call of one operator.
class Call {
 public:
  Call(const c10::OperatorHandle& op, DispatchKey key)
      : op_(op), schema_(op.schema()), key_(key), views_(op.schema().name()) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        is_known(schema_.name()) && op.hasComputedKernelForDispatchKey(key), schema_.operator_name(),
        " is not implemented for the sim device");
  }

  void run(Stack* stack) {
    const auto first = stack->size() - schema_.arguments().size();
    find_device(*stack, first);
    views_.set_device(goal_.value_or(*device_));
    note_arguments(*stack, first);
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      (*stack)[first + i] = to_host((*stack)[first + i], schema_.arguments()[i]);
    }
    run_on_host(stack);
    views_.update_arguments();
    results_to_device(stack, stack->size() - schema_.returns().size());
    note_results(*stack);
  }

 private:
  void find_device(const Stack& stack, size_t first) {
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      const auto& name = schema_.arguments()[i].name();
      each_tensor(stack[first + i], [&](const at::Tensor& tensor) { meet(tensor, name); });
    }
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      meet_requested(stack[first + i]);
    }
    if (!device_) {
      device_ = c10::Device(kSim, current_device());
    }
    check_usable(device_->index());
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      const auto& argument = schema_.arguments()[i];
      each_tensor(stack[first + i], [&](const at::Tensor& tensor) { check(tensor, argument); });
    }
  }

  void meet(const at::Tensor& tensor, const std::string& name) {
    if (is_sim(tensor)) {
      views_.check_supported(tensor);
      if (device_ && *device_ != tensor.device()) {
        refuse(tensor.device(), name);
      }
      device_ = tensor.device();
    }
  }

  // A factory names its device. If it has a tensor too, of another device, it is one that wants
  // no more than its shape: `empty_like`.
  void meet_requested(const IValue& value) {
    if (!value.isDevice()) {
      return;
    }
    auto requested = value.toDevice();
    if (requested.type() == kSim) {
      requested = with_index(requested);
      check_usable(requested.index());
    }
    if (!device_ && requested.type() == kSim) {
      device_ = requested;
    } else if (device_ && *device_ != requested) {
      const bool reachable = requested.type() == kSim || requested.is_cpu();
      if (!reachable || !is_like(schema_)) {
        refuse(requested, "device");
      }
      goal_ = requested;
    }
  }

  void check(const at::Tensor& tensor, const c10::Argument& argument) const {
    if (!tensor.defined() || is_sim(tensor)) {
      return;
    }
    const bool scalar = tensor.dim() == 0 &&
        (tensor.unsafeGetTensorImpl()->is_wrapped_number() || takes_host_scalars(schema_));
    const bool index = argument.name() == "indices" && takes_host_indices(schema_);
    if (!tensor.device().is_cpu() || is_written(argument) || !(scalar || index)) {
      refuse(tensor.device(), argument.name());
    }
  }

  [[noreturn]] void refuse(c10::Device other, const std::string& argument) const {
    TORCH_CHECK(
        false, "Expected all tensors to be on the same device, but found at least two devices, ",
        *device_, " and ", other, "! (when checking argument ", argument, " of ", schema_.name(),
        ")");
  }

  IValue to_host(const IValue& value, const c10::Argument& argument) {
    if (value.isDevice()) {
      return c10::Device(c10::kCPU);
    }
    if (value.isGenerator()) {
      return generator_to_host(value.toGenerator());
    }
    if (value.isNone() && is_optional_generator(argument)) {
      return host_generator(default_generator(device_->index()));
    }
    if (value.isStorage()) {
      return storage_to_host(value.toStorage(), argument.name());
    }
    return map_tensors(value, [&](const at::Tensor& tensor) { return views_.to_host(tensor); });
  }

  at::Generator generator_to_host(const at::Generator& generator) const {
    TORCH_CHECK(
        generator.device() == *device_, "Expected a '", *device_,
        "' generator device but found '", generator.device(), "'");
    return host_generator(generator);
  }

  c10::Storage storage_to_host(const c10::Storage& storage, const std::string& name) {
    if (storage.device() != *device_) {
      refuse(storage.device(), name);
    }
    return views_.to_host(storage);
  }

  void run_on_host(Stack* stack) const {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(DispatchKey::AutocastCPU);
    [[maybe_unused]] const OneHostThread one_thread;
    op_.redispatchBoxed(c10::DispatchKeySet(key_), stack);
  }

  void results_to_device(Stack* stack, size_t first) {
    if (goal_ && goal_->is_cpu()) {
      return;
    }
    for (size_t i = first; i < stack->size(); ++i) {
      each_tensor((*stack)[i], [&](const at::Tensor& tensor) { views_.count_owner(tensor); });
    }
    for (size_t i = first; i < stack->size(); ++i) {
      (*stack)[i] = map_tensors(
          (*stack)[i], [&](const at::Tensor& tensor) { return views_.to_device(tensor); });
    }
  }

  void note_arguments(const Stack& stack, size_t first) {
    if (!races::is_on() || touches_no_element(schema_)) {
      return;
    }
    step_.emplace(schema_.name().c_str(), goal_.value_or(*device_).index());
    if (goal_) {
      return;  // shapes alone are taken to another device
    }
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      const bool written = is_written(schema_.arguments()[i]);
      each_tensor(stack[first + i], [&](const at::Tensor& tensor) {
        if (is_sim(tensor)) {
          written ? step_->writes(tensor) : step_->reads(tensor);
        }
      });
    }
  }

  void note_results(const Stack& stack) {
    if (!step_) {
      return;
    }
    for (size_t i = stack.size() - schema_.returns().size(); i < stack.size(); ++i) {
      each_tensor(stack[i], [&](const at::Tensor& tensor) {
        if (is_sim(tensor)) {
          step_->makes(tensor);
        }
      });
    }
    if (tells_host(schema_)) {
      step_->host_waits();
    }
  }

  std::optional<races::Step> step_;
  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  const DispatchKey key_;
  HostViews views_;
  std::optional<c10::Device> device_;
  std::optional<c10::Device> goal_;  // of the results, if not the same
};

constexpr DispatchKey kComposite[] = {
    DispatchKey::CompositeExplicitAutograd, DispatchKey::CompositeImplicitAutograd,
    DispatchKey::CompositeExplicitAutogradNonFunctional};

template <DispatchKey key>
void fall_back(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  Call(op, key).run(stack);
}

// What `convolution` asks of an accelerator that PyTorch does not know, with its own arguments.
void convolve(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  Call(op, DispatchKey::CPU).run(stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back<DispatchKey::CPU>>());
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back<DispatchKey::SparseCPU>>());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back<DispatchKey::SparseCsrCPU>>());
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back<DispatchKey::NestedTensorCPU>>());
}

// Whoever quantizes for inference does it on the CPU: CUDA, too, lacks the quantized layers.
void refuse_quantized(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.operator_name(), " is not implemented for the sim device: it has no quantized ",
      "tensors");
}

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
}

// What its backward reads the CPU's kernel keeps only for arguments that require gradients, which
// copies on the host do not. CUDA has no such kernel either.
void refuse_reduction(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.operator_name(), " is not implemented for the sim device, as it is not for CUDA");
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl(
      "_sparse_mm_reduce_impl",
      torch::CppFunction::makeFromBoxedFunction<&refuse_reduction>());
}

// Where the CPU prefers its kernel to a composite one, so must sim; a fallback would come last.
template <DispatchKey host, DispatchKey device>
void prefer_kernels_of(torch::Library& library) {
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (name.name.rfind("aten::", 0) != 0 || !op || op->hasKernelForDispatchKey(device) ||
        !op->hasKernelForDispatchKey(host)) {
      continue;
    }
    const bool composite = std::any_of(
        std::begin(kComposite), std::end(kComposite),
        [&](DispatchKey key) { return op->hasKernelForDispatchKey(key); });
    if (composite) {
      const auto full = name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
      library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&fall_back<host>>());
    }
  }
}

}  // namespace

void call_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call(op, DispatchKey::CPU).run(stack);
}

void register_fallbacks() {
  static torch::Library dense(
      torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  static torch::Library sparse(
      torch::Library::IMPL, "aten", DispatchKey::SparsePrivateUse1, __FILE__, __LINE__);
  static torch::Library compressed(
      torch::Library::IMPL, "aten", DispatchKey::SparseCsrPrivateUse1, __FILE__, __LINE__);
  static torch::Library nested(
      torch::Library::IMPL, "aten", DispatchKey::NestedTensorPrivateUse1, __FILE__, __LINE__);
  prefer_kernels_of<DispatchKey::CPU, DispatchKey::PrivateUse1>(dense);
  prefer_kernels_of<DispatchKey::SparseCPU, DispatchKey::SparsePrivateUse1>(sparse);
  prefer_kernels_of<DispatchKey::SparseCsrCPU, DispatchKey::SparseCsrPrivateUse1>(compressed);
  prefer_kernels_of<DispatchKey::NestedTensorCPU, DispatchKey::NestedTensorPrivateUse1>(nested);
  // Composite kernels of these ask for operators, or for a device type, that only others have.
  for (const char* name : {"convolution_backward", "conj_physical_", "mode.values"}) {
    dense.impl(
        name, torch::CppFunction::makeFromBoxedFunction<&fall_back<DispatchKey::CPU>>());
  }
  dense.impl(
      "convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolve>());
}

}  // namespace sim
