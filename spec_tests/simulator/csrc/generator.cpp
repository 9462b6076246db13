// Random numbers: each device has a generator, which wraps a CPU generator.

#include "faults.h"
#include "sim.h"

#include <ATen/CPUGeneratorImpl.h>

#include <map>
#include <mutex>

namespace sim {
namespace {

class Generator final : public c10::GeneratorImpl {
 public:
  Generator(c10::DeviceIndex index, at::Generator host)
      : c10::GeneratorImpl(
            c10::Device(kSim, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host_(std::move(host)) {}

  void set_current_seed(uint64_t seed) override {
    if (!faults::is_on("seeds-ignored")) {
      host_.set_current_seed(seed);
    }
  }

  void set_offset(uint64_t offset) override {
    host_.set_offset(offset);
  }

  uint64_t get_offset() const override {
    return host_.get_offset();
  }

  uint64_t current_seed() const override {
    return host_.current_seed();
  }

  uint64_t seed() override {
    return host_.seed();
  }

  void set_state(const c10::TensorImpl& state) override {
    host_.unsafeGetGeneratorImpl()->set_state(state);
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return host_.unsafeGetGeneratorImpl()->get_state();
  }

  static c10::DeviceType device_type() {
    return kSim;
  }

  const at::Generator& host() const {
    return host_;
  }

 private:
  Generator* clone_impl() const override {
    return new Generator(device().index(), host_.clone());
  }

  at::Generator host_;
};

}  // namespace

at::Generator make_generator(c10::DeviceIndex index) {
  check_usable(index);
  return at::make_generator<Generator>(index, at::detail::createCPUGenerator());
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static std::mutex mutex;
  static auto* generators = new std::map<c10::DeviceIndex, at::Generator>;
  check_usable(index);
  index = faults::is_on("one-generator") ? 0 : index;
  const std::lock_guard<std::mutex> lock(mutex);
  auto entry = generators->find(index);
  if (entry == generators->end()) {
    entry = generators->emplace(index, make_generator(index)).first;
  }
  return entry->second;
}

at::Generator host_generator(const at::Generator& generator) {
  return at::check_generator<Generator>(generator)->host();
}

}  // namespace sim
