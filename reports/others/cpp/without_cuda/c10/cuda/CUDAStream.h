// Replaces PyTorch's header of this name in a build without CUDA. data_parallel.h needs the type
// only; no stream is created.
#pragma once

namespace c10::cuda {
class CUDAStream {};
} // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CUDAStream;
} // namespace at::cuda
