"""Print the OpenCL devices that PyTorch can use, or say how to get the back end (status 1)."""

import sys

import torch

_HELP = """\
The module pytorch_ocl cannot be imported ({error}).

It is an OpenCL back end for PyTorch: https://github.com/artyom-beilis/pytorch_dlprim.
Build it for PyTorch {torch}, as its README says, set PYTORCH_OCL to the folder that has the
package pytorch_ocl, and run tox -e opencl again. At commit 30e27c8 it neither counts its devices
nor copies between them; the command "parallel-conformance doctor --accelerator ocl
-p pytorch_ocl" prints what a build lacks.
"""


def main() -> int:
    """Import the back end and print its devices; return 1 if it cannot be imported."""
    try:
        import pytorch_ocl  # noqa: F401 # registers the device type "ocl"
    except ImportError as error:
        print(_HELP.format(error=error, torch=torch.__version__), end="")
        return 1
    print(f"{torch.accelerator.device_count()} devices of type ocl")
    return 0


if __name__ == "__main__":
    sys.exit(main())
