// In place of PyTorch's header of this name: data_parallel.h needs the type only, and creates no stream.
#pragma once

namespace c10::cuda {
class CUDAStream {};
} // namespace c10::cuda
namespace at::cuda {
using c10::cuda::CUDAStream;
} // namespace at::cuda
