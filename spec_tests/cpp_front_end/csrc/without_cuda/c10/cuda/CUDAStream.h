// Stands before PyTorch's header of this name in a build without CUDA, whose data_parallel.h wants
// the type and no more: no stream of it is ever made.
#pragma once

namespace c10::cuda {
class CUDAStream {};
} // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CUDAStream;
} // namespace at::cuda
