// Runs the CPU kernel on device memory, for every operator without a sim kernel.
//
//   1. Find the common device of the arguments, or raise.
//   2. Replace each sim tensor with a CPU tensor that shares its memory: a host view.
//   3. Run the CPU kernel.
//   4. Copy changed sizes, strides and storages from the host views to the arguments.
//   5. Convert the results to sim tensors. A result is an argument, shares the memory of an
//      argument, or has new memory.

#include "faults.h"
#include "features.h"
#include "host_views.h"
#include "placement.h"
#include "races.h"

#include <ATen/Config.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <iterator>

#if AT_PARALLEL_OPENMP
// Declared here, because <omp.h> would need the compiler flag -fopenmp.
extern "C" void omp_set_num_threads(int count);
#endif

namespace sim {
namespace {

// Sets the number of OpenMP threads of this thread to 1. Otherwise every thread that enqueues work
// would own an OpenMP pool. With more pools than cores, OpenMP's threads sleep between two
// operators, and waking them takes longer than a small operator.
class SingleThreadGuard {
 public:
#if AT_PARALLEL_OPENMP
  // The first at::get_num_threads() of a thread also sets the number, so call it before setting 1.
  SingleThreadGuard() : previous_(at::get_num_threads()) { omp_set_num_threads(1); }
  ~SingleThreadGuard() { omp_set_num_threads(previous_); }

 private:
  int previous_;
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

bool is_like_factory(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name(), suffix = "_like";
  return name.size() > suffix.size() && name.substr(name.size() - suffix.size()) == suffix;
}

// Returns whether the operator belongs to a library whose schemas declare writes and aliases
// correctly. torchvision is among them because it has CPU kernels, but will never have sim kernels.
bool is_supported(const std::string& name) {
  constexpr std::array<std::string_view, 3> libraries = {"aten::", "prims::", "torchvision::"};
  return std::any_of(libraries.begin(), libraries.end(), [&](std::string_view library) {
    return name.compare(0, library.size(), library) == 0;
  });
}

template <typename F>
void for_each_tensor(const IValue& value, F&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const IValue& item : value.toListRef()) {
      for_each_tensor(item, visit);
    }
  }
}

// Returns a copy of `value` in which each tensor t is replace(t).
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
class OperatorCall {
 public:
  OperatorCall(const c10::OperatorHandle& op, DispatchKey key)
      : op_(op), schema_(op.schema()), key_(key), views_(op.schema().name()) {
    const bool is_sparse = key == DispatchKey::SparseCPU || key == DispatchKey::SparseCsrCPU;
    // Facts of failures have no text in parentheses, so that registers need not name the layout.
    TORCH_CHECK_NOT_IMPLEMENTED(
        is_supported(schema_.name()) && op.hasComputedKernelForDispatchKey(key),
        schema_.operator_name(), " is not implemented for the sim device",
        is_sparse                                ? " (sparse tensors)"
            : key == DispatchKey::NestedTensorCPU ? " (nested tensors)"
                                                  : "");
    TORCH_CHECK_NOT_IMPLEMENTED(
        !is_sparse || features::has(features::Feature::sparse), "sim has no sparse tensors");
  }

  void run(Stack* stack) {
    const auto first = stack->size() - schema_.arguments().size();
    find_device(*stack, first);
    views_.set_device(result_device_.value_or(*device_));
    record_arguments(*stack, first);
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      (*stack)[first + i] = to_host((*stack)[first + i], schema_.arguments()[i]);
    }
    run_on_host(stack);
    apply_faults(stack);
    views_.update_arguments();
    results_to_device(stack, stack->size() - schema_.returns().size());
    record_results(*stack);
  }

 private:
  void find_device(const Stack& stack, size_t first) {
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      const auto& name = schema_.arguments()[i].name();
      for_each_tensor(stack[first + i], [&](const at::Tensor& tensor) {
        add_tensor_device(tensor, name);
      });
    }
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      add_requested_device(stack[first + i]);
    }
    if (!device_) {
      device_ = c10::Device(kSim, current_device());
    }
    check_usable(device_->index());
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      const auto& argument = schema_.arguments()[i];
      for_each_tensor(stack[first + i], [&](const at::Tensor& tensor) {
        check_host_tensor(tensor, argument);
      });
    }
  }

  void add_tensor_device(const at::Tensor& tensor, const std::string& name) {
    if (is_sim(tensor)) {
      views_.check_supported(tensor);
      if (device_ && *device_ != tensor.device() && !faults::is_on("mixed-devices")) {
        raise_mismatch(tensor.device(), name);
      }
      device_ = tensor.device();
    }
  }

  // An operator that creates a tensor has a device argument. Only a `*_like` operator may also have
  // a tensor on another device, because it reads only the tensor's metadata.
  void add_requested_device(const IValue& value) {
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
      const bool is_supported_device = requested.type() == kSim || requested.is_cpu();
      if (!is_supported_device || !is_like_factory(schema_)) {
        raise_mismatch(requested, "device");
      }
      result_device_ = requested;
    }
  }

  void check_host_tensor(const at::Tensor& tensor, const c10::Argument& argument) const {
    if (!tensor.defined() || is_sim(tensor)) {
      return;
    }
    const bool is_scalar = tensor.dim() == 0 &&
        (tensor.unsafeGetTensorImpl()->is_wrapped_number() || accepts_host_scalars(schema_));
    const bool is_index = argument.name() == "indices" && accepts_host_indices(schema_);
    if (!tensor.device().is_cpu() || is_written(argument) || !(is_scalar || is_index)) {
      raise_mismatch(tensor.device(), argument.name());
    }
  }

  [[noreturn]] void raise_mismatch(c10::Device other, const std::string& argument) const {
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
    return map_tensors(value, [&](const at::Tensor& tensor) {
      has_empty_ = has_empty_ || (tensor.defined() && tensor.numel() == 0);
      return views_.to_host(reads_wrongly(tensor, argument) ? restrided(tensor, argument) : tensor);
    });
  }

  // Returns whether a fault is enabled that reads or writes this argument at wrong places.
  bool reads_wrongly(const at::Tensor& tensor, const c10::Argument& argument) const {
    if (!tensor.defined() || !is_sim(tensor) || tensor.layout() != c10::kStrided) {
      return false;
    }
    const bool is_part = is_written(argument) && tensor.storage_offset() > 0;
    const bool is_transposed = !tensor.is_contiguous() && schema_.name() == "aten::mm";
    const bool is_weight = argument.name() == "weight" && schema_.name() == "aten::convolution";
    return (is_part && faults::is_on("writes-from-the-start")) ||
        (is_transposed && faults::is_on("transposed-products")) ||
        (is_weight && faults::is_on("contiguous-weights"));
  }

  static at::Tensor restrided(const at::Tensor& tensor, const c10::Argument& argument) {
    return is_written(argument)
        ? tensor.as_strided(tensor.sizes(), tensor.strides(), 0)
        : tensor.as_strided(tensor.sizes(), c10::TensorType::contiguousStridesOf(tensor.sizes()));
  }

  // Changes the results on the host if a fault is enabled that computes wrong values.
  void apply_faults(Stack* stack) const {
    const bool is_wrong = (has_empty_ && faults::is_on("garbage-of-empty-batches")) ||
        (key_ == DispatchKey::SparseCPU && faults::is_on("zeros-of-sparse"));
    for (size_t i = stack->size() - schema_.returns().size(); is_wrong && i < stack->size(); ++i) {
      for_each_tensor((*stack)[i], [&](const at::Tensor& tensor) {
        if (tensor.defined() && tensor.is_floating_point() && !tensor.is_sparse()) {
          tensor.fill_(has_empty_ ? 7 : 0);
        }
      });
    }
  }

  at::Generator generator_to_host(const at::Generator& generator) const {
    TORCH_CHECK(
        generator.device() == *device_, "Expected a '", *device_,
        "' generator device but found '", generator.device(), "'");
    return host_generator(
        faults::is_on("generator-ignored") ? default_generator(device_->index()) : generator);
  }

  c10::Storage storage_to_host(const c10::Storage& storage, const std::string& name) {
    if (storage.device() != *device_) {
      raise_mismatch(storage.device(), name);
    }
    return views_.to_host(storage);
  }

  void run_on_host(Stack* stack) const {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(DispatchKey::AutocastCPU);
    [[maybe_unused]] const SingleThreadGuard single_thread;
    op_.redispatchBoxed(c10::DispatchKeySet(key_), stack);
  }

  void results_to_device(Stack* stack, size_t first) {
    if (result_device_ && result_device_->is_cpu()) {
      return;
    }
    for (size_t i = first; i < stack->size(); ++i) {
      for_each_tensor((*stack)[i], [&](const at::Tensor& tensor) {
        if (tensor.defined()) {
          features::check_dtype(tensor.scalar_type());
        }
        views_.count_owner(tensor);
      });
    }
    for (size_t i = first; i < stack->size(); ++i) {
      (*stack)[i] = map_tensors(
          (*stack)[i], [&](const at::Tensor& tensor) { return views_.to_device(tensor); });
    }
  }

  void record_arguments(const Stack& stack, size_t first) {
    if (!races::is_on() || accesses_no_data(schema_)) {
      return;
    }
    const bool is_elsewhere = faults::is_on("stream-of-another-device") && current_device() != 0;
    const auto index = result_device_.value_or(*device_).index();
    step_.emplace(schema_.name().c_str(), is_elsewhere ? current_device() : index);
    if (result_device_) {
      return;  // a *_like operator reads only the metadata of its argument
    }
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      const bool writes = is_written(schema_.arguments()[i]);
      for_each_tensor(stack[first + i], [&](const at::Tensor& tensor) {
        if (is_sim(tensor)) {
          writes ? step_->writes(tensor) : step_->reads(tensor);
        }
      });
    }
  }

  void record_results(const Stack& stack) {
    if (!step_) {
      return;
    }
    for (size_t i = stack.size() - schema_.returns().size(); i < stack.size(); ++i) {
      for_each_tensor(stack[i], [&](const at::Tensor& tensor) {
        if (is_sim(tensor)) {
          step_->returns(tensor);
        }
      });
    }
    if (synchronizes_host(schema_)) {
      step_->host_waits();
    }
  }

  std::optional<races::Step> step_;
  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  const DispatchKey key_;
  HostViews views_;
  bool has_empty_ = false;
  std::optional<c10::Device> device_;
  std::optional<c10::Device> result_device_;  // only if it differs from device_
};

constexpr DispatchKey kComposite[] = {
    DispatchKey::CompositeExplicitAutograd, DispatchKey::CompositeImplicitAutograd,
    DispatchKey::CompositeExplicitAutogradNonFunctional};

template <DispatchKey key>
void fall_back(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  try {
    OperatorCall(op, key).run(stack);
  } catch (...) {
    faults::record_error();
    throw;
  }
}

// The kernel of `convolution_overrideable`. `convolution` calls it with its own arguments on
// accelerators that PyTorch does not know.
void convolve(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  OperatorCall(op, DispatchKey::CPU).run(stack);
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

// The CPU kernel saves tensors for backward only if an argument requires gradients. The fallback
// passes views that never require gradients, so backward would fail. CUDA has no kernel either.
void reject_sparse_reduce(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.operator_name(), " is not implemented for the sim device, as it is not for CUDA");
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl(
      "_sparse_mm_reduce_impl",
      torch::CppFunction::makeFromBoxedFunction<&reject_sparse_reduce>());
}

// Registers the CPU kernels of operators that also have composite kernels. The dispatcher prefers a
// composite kernel to the fallback, so the fallback alone would never run these CPU kernels.
template <DispatchKey host, DispatchKey device>
void register_host_kernels(torch::Library& library) {
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (name.name.rfind("aten::", 0) != 0 || !op || op->hasKernelForDispatchKey(device) ||
        !op->hasKernelForDispatchKey(host)) {
      continue;
    }
    const bool is_composite = std::any_of(
        std::begin(kComposite), std::end(kComposite),
        [&](DispatchKey key) { return op->hasKernelForDispatchKey(key); });
    if (is_composite) {
      const auto overload = name.overload_name.empty() ? "" : "." + name.overload_name;
      const auto full_name = name.name + overload;
      library.impl(
          full_name.c_str(), torch::CppFunction::makeFromBoxedFunction<&fall_back<host>>());
    }
  }
}

}  // namespace

void call_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  OperatorCall(op, DispatchKey::CPU).run(stack);
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
  register_host_kernels<DispatchKey::CPU, DispatchKey::PrivateUse1>(dense);
  register_host_kernels<DispatchKey::SparseCPU, DispatchKey::SparsePrivateUse1>(sparse);
  register_host_kernels<DispatchKey::SparseCsrCPU, DispatchKey::SparseCsrPrivateUse1>(compressed);
  register_host_kernels<DispatchKey::NestedTensorCPU, DispatchKey::NestedTensorPrivateUse1>(nested);
  // The composite kernels of these operators need operators or device types that sim lacks.
  for (const char* name : {"convolution_backward", "conj_physical_", "mode.values"}) {
    dense.impl(
        name, torch::CppFunction::makeFromBoxedFunction<&fall_back<DispatchKey::CPU>>());
  }
  dense.impl(
      "convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolve>());
}

}  // namespace sim
