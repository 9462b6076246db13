"""``enable(as_cuda=True)``: a program that names CUDA runs on the simulated devices."""

import pytest

from spec_tests.machine.processes import run_program

pytestmark = [pytest.mark.usefixtures("sim"), pytest.mark.slow]

PROGRAM = """
import io
import pickle
import torch
from spec_tests import simulator

simulator.enable(4, as_cuda=True)
second = torch.device("cuda:1")
x = torch.ones(2, 3, device="cuda:1")
layer = torch.nn.Linear(3, 3).cuda(1)

def index_on_current_device():
    with torch.cuda.device(2):
        return torch.zeros(1, device="cuda").get_device()

def device_of_stream():
    with torch.cuda.stream(torch.cuda.Stream("cuda:1")):
        return torch.cuda.current_device()

def dtype_in_autocast():
    with torch.autocast("cuda"):
        return torch.is_autocast_enabled() and layer(x).dtype

def index_after_load(map_location):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, map_location=map_location).get_device()

def double_in_torchscript():
    torch.device("cuda:1")
    def double(x: torch.Tensor):
        return 2 * x
    def call(x: torch.Tensor):
        return double(x)
    return torch.jit.script(call)(torch.ones(1)).item()

def draw(generator):
    return torch.rand(2, device="cuda", generator=generator).tolist()

torch.cuda.manual_seed(3)
facts = {
    "count": torch.cuda.is_available() and torch.cuda.device_count() == 4,
    "tensor": x.is_cuda and x.device == second and x.device.type == "cuda",
    "device": isinstance(second, torch.device) and pickle.loads(pickle.dumps(second)) == second,
    "copies": (x.to("cuda:2").get_device(), x.cuda(3).get_device(), x.cpu().is_cuda) == (2, 3, 0),
    "methods": {x.cuda(each).get_device() for each in ("cuda:1", second, 1)} == {1},
    "module": layer.weight.is_cuda and torch.nn.Linear(1, 1, device="cuda:1").weight.is_cuda,
    "current device": index_on_current_device() == 2,
    "stream": device_of_stream() == 1,
    "autocast": dtype_in_autocast() == torch.float16,
    "load": (index_after_load(None), index_after_load({"cuda:1": "cuda:3"})) == (1, 3),
    "TorchScript": double_in_torchscript() == 2,
    "seed": draw(None) == draw(torch.Generator("cuda").manual_seed(3)),
}
assert all(facts.values()), facts
"""


def test_a_program_for_cuda_runs_on_the_simulated_devices():
    done = run_program(PROGRAM)
    assert done.returncode == 0, done.stderr
