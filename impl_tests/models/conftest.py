"""The models' packages import torchvision, which needs help beside a CPU build of PyTorch."""

from impl_tests import hollow_cuda

hollow_cuda.load()
