"""Facts about ``torch::nn::parallel`` on four simulated devices, in the table `FACTS`.

A fact that agrees with clauses of the specification gives them the verdict pass, and a fact that
contradicts them the verdict known. The other facts are about the C++ front end only.
"""

import os
import sys
import threading
import warnings
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn, ones
from torch.nn import functional as F  # noqa: N812
from torch.nn import parallel as reference
from torch.testing import assert_close

from spec_tests.failure import Failure
from spec_tests.machine import clauses

SIM, CPU = [torch.device("sim", ordinal) for ordinal in range(4)], torch.device("cpu")


@cache
def cpp():
    """Return the extension front_end.cpp; compile it unless cpp_extension has it in its cache."""
    from torch.utils import cpp_extension

    folder = Path(__file__).parent
    torch.set_num_threads(2)  # for `end_in_turn`
    # ninja may be a package of this environment, whose folder need not be in PATH.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    # -O0 halves the time of compilation. Without -fopenmp modules run one after another.
    flags = ["-O0", "-std=c++20", "-fopenmp", f"-I{folder / 'without_cuda'}"]
    with warnings.catch_warnings(action="ignore"):
        source = str(folder / "front_end.cpp")
        return cpp_extension.load("cpp_front_end", source, extra_cflags=flags)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.again = self.first.weight
        self.register_buffer("scale", ones(6, device=SIM[0], requires_grad=True))

    def forward(self, x):
        return F.linear(torch.tanh(self.first(x)) * self.scale, self.again)


def make_layers():
    layers = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5)
    return nn.Sequential(nn.Sequential(*layers))


#: Functions that make a module in Python. All kinds but "layers" compute each row by itself.
MODULES = {"tied": Tied, "tanh": nn.Tanh, "layers": make_layers}
COUNT = "0.1.num_batches_tracked"


def make_module(kind, language="C++"):
    """Return a module on the first device. Its weights are the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = MODULES[kind]().to(SIM[0])
    if language == "Python":
        return module
    model = cpp().Model(kind, torch.tanh).to(SIM[0])
    with torch.no_grad():
        for name, tensor in named_tensors(module).items():
            model.tensors()[name].copy_(tensor)
    return model


def named_tensors(module):
    """Return all parameters and buffers by name. A tied parameter is under each of its names."""
    if isinstance(module, nn.Module):
        parameters = module.named_parameters(remove_duplicate=False)
        return dict([*parameters, *module.named_buffers()])
    return module.tensors()


def replicate(kind, count=3):
    """Return the C++ module of a kind, and its replicas."""
    model = make_module(kind)
    return [model, *cpp().replicate(model, SIM[:count])]


def make_batch(kind, rows, ordinal=0):
    shape = (2, 4, 4) if kind == "layers" else (6,)
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, *shape, generator=generator).to(SIM[ordinal]).requires_grad_()


def loss_of(output):
    # With equal weights, the gradient through batch norm would be 0.
    weights = torch.linspace(0.5, 1.5, output.numel()).reshape(output.shape)
    return (output.cpu() * weights).square().mean()


def gradients_of(module):
    return {name: each.grad for name, each in named_tensors(module).items() if each.requires_grad}


def train(kind, language, rows, call, *args):
    """Return the output and the gradients of two steps of training."""
    module, batch = make_module(kind, language), make_batch(kind, rows)
    leaves = {id(x): x for x in [batch, *named_tensors(module).values()] if x.requires_grad}
    optimizer = torch.optim.SGD(leaves.values())
    for _ in range(2):
        output = call(module, batch, *args)
        loss_of(output).backward()
        optimizer.step()
    return {"output": output.detach(), "batch": batch.grad, **gradients_of(module)}


def trains_alike():
    batches = [(4, 2, 0), (5, 3, 0), (7, 4, 0), (3, 1, 0), (2, 4, 0)]  # rows, devices and dim
    cases = [(kind, *batch) for kind in MODULES for batch in batches]
    for kind, rows, count, dim in [*cases, ("tanh", 4, 2, 1), ("tanh", 4, 2, -1)]:
        args = SIM[:count], None, dim
        actual = train(kind, "C++", rows, cpp().data_parallel, *args)
        expected = [train(kind, "Python", rows, reference.data_parallel, *args)]
        if kind != "layers":
            expected += [train(kind, "Python", rows, nn.Module.__call__)]
        assert_close([actual] * len(expected), expected, msg=f"{kind}, {rows}, {args} {{}}".format)


def data_parallel(function, batch, devices, output_device=None):
    return cpp().data_parallel(cpp().Model("", function), batch, devices, output_device, 0)


def count_forwards(devices):
    """Return the module's count of forwards, and its devices, after a call of data_parallel."""
    model = make_module("layers")
    cpp().data_parallel(model, make_batch("layers", 4), devices, None, 0)
    return named_tensors(model)[COUNT].item(), {x.device for x in named_tensors(model).values()}


def are_copies():
    for kind in MODULES:
        model, *replicas = replicate(kind)
        for device, replica in zip(SIM[:3], replicas, strict=True):
            assert not any(x.is_leaf for x in named_tensors(replica).values() if x.requires_grad)
            expected = {name: each.to(device) for name, each in named_tensors(model).items()}
            assert_close(named_tensors(replica), expected, rtol=0, atol=0)  # and equal devices


def shared_tensors(*modules):
    """Return the number of tensors that share memory with another one."""
    memory = [tensor.data_ptr() for each in modules for tensor in named_tensors(each).values()]
    return len(memory) - len(set(memory))


def counts_of_replicas():
    modules = replicate("layers")
    for ordinal, replica in enumerate(modules[1:]):
        replica(make_batch("layers", 4, ordinal))
    return [named_tensors(each)[COUNT].item() for each in modules]


def sums_gradients():
    module, model, *replicas = make_module("tied", "Python"), *replicate("tied")
    actual = [replica(make_batch("tied", 4, i)).cpu() for i, replica in enumerate(replicas)]
    expected = [module(make_batch("tied", 4)).cpu()] * len(replicas)
    assert_close(actual, expected)
    (sum(map(loss_of, actual)) + sum(map(loss_of, expected))).backward()
    assert_close(gradients_of(model), gradients_of(module))


def copies_by_node():
    """Return for each leaf the number of nodes of its copies in three replicas."""
    # Python objects do not identify nodes. Sequence numbers do: they are unique in a thread.
    tensors = [each.tensors().values() for each in replicate("layers")[1:]]
    numbers = [[x.grad_fn._sequence_nr() for x in each if x.requires_grad] for each in tensors]
    return [len(set(each)) for each in zip(*numbers, strict=True)], len(set(numbers[0]))


def sums_during_backward():
    # Backward begins with the last layer. Autograd has one thread for each device.
    model, *replicas = replicate("layers", 2)
    summed, waited, losses = threading.Event(), [], []
    for ordinal, replica in enumerate(replicas):
        middle = replica.run_layers(make_batch("layers", 2, ordinal), 0, 3)
        losses.append(loss_of(replica.run_layers(middle, 3, 5)))
    middle.register_hook(lambda _: waited.append(summed.wait(60)))
    last = model.tensors()["0.4.weight"]
    last.register_post_accumulate_grad_hook(lambda _: summed.set())
    sum(losses).backward()
    return waited


def names_with_gradients(*used):
    """Return the names of parameters with gradients after the first layer of some replicas."""
    model, *replicas = replicate("layers", 2)
    sum(loss_of(replicas[i].run_layers(make_batch("layers", 2, i), 0, 1)) for i in used).backward()
    return {name for name, gradient in gradients_of(model).items() if gradient is not None}


def differentiate_twice():
    model, *replicas = replicate("tied", 2)
    loss = loss_of(replicas[1](make_batch("tied", 2, 1)))
    torch.autograd.grad(loss, [*model.tensors().values()], create_graph=True)


def parallel_apply(function, inputs, devices=None):
    return cpp().parallel_apply([cpp().Model("", function)] * len(inputs), inputs, devices)


def current_device(_):
    return torch.tensor([torch.accelerator.current_device_index()])


def devices_of(outputs):
    return [output.device for output in outputs]


def end_in_turn(*rows):
    """Run a module for each row (number, code); return the codes, and how many have ended.

    A module ends after ``number`` others, with an error if the code is negative. Two threads run
    half of the modules each, one after another.
    """
    ended, has_ended = [], threading.Condition()

    def end(x):
        number, code = x.tolist()
        with has_ended:
            assert has_ended.wait_for(lambda: len(ended) >= number, 60)
            ended.append(code)
            has_ended.notify_all()
        if code < 0:
            raise ValueError(f"module {-code} failed")
        return x

    try:
        return [x[1].item() for x in parallel_apply(end, [*map(torch.tensor, rows)])]
    except ValueError as error:
        return str(error), len(ended)


# fmt: off
#: What holds, the verdict, the clauses, a call, and its result, or the error that it raises.
FACTS = [
    ("two steps of training are those of torch.nn.parallel and of the module alone", "pass",
        "data_parallel.outputs data_parallel.gradients data_parallel.transparent "
        "data_parallel.training.same-as-the-reference data_parallel.split-dimension",
        trains_alike, None),
    ("chunk i is computed on device i of the list", "pass", "data_parallel.devices.order",
        lambda: data_parallel(lambda x: 0 * x + x.get_device(), ones(3), SIM[2::-1]).tolist(),
        [2, 1, 0]),
    ("a device without a chunk gets no replica, and need not exist", "pass",
        "data_parallel.devices.used-prefix",
        lambda: data_parallel(torch.tanh, ones(2), [*SIM[:2], torch.device("sim:9")]).shape, (2,)),
    ("outputs are gathered on output_device, or else on the first device", "pass",
        "data_parallel.devices.output",
        lambda: devices_of(data_parallel(torch.tanh, ones(4), [SIM[1], SIM[0]], destination)
                           for destination in (None, CPU, SIM[2])), [SIM[1], CPU, SIM[2]]),
    ("the output of one device is moved to output_device, too", "pass", "",
        lambda: data_parallel(torch.tanh, ones(4), SIM[:1], SIM[1]).device, SIM[1]),
    ("one device runs the module itself, and moves it to the device", "pass",
        "data_parallel.one-device.same-objects", lambda: count_forwards(SIM[1:2]), (1, {SIM[1]})),
    ("a call on several devices does not change the buffers of the module", "known",
        "data_parallel.state.buffers data_parallel.state.batch-norm",
        lambda: count_forwards(SIM[:2]), (0, {SIM[0]})),
    ("without devices it looks for CUDA devices, also on another accelerator", "known",
        "data_parallel.devices.default", lambda: data_parallel(torch.tanh, ones(4), None),
        RuntimeError("Expected at least one CUDA device to be available")),
    ("replica i has copies of all parameters and buffers on device i", "pass",
        "replicate.one-per-device replicate.on-its-device replicate.parameters.copies",
        are_copies, None),
    ("a replica shares no tensor with the module, also on the module's device", "known",
        "replicate.buffers.first-is-the-modules replicate.parameters.are-attributes",
        lambda: shared_tensors(*replicate("layers")), 0),
    ("changes of buffers by replicas, also by the first, do not reach the module", "known",
        "replicate.buffers.updates-of-the-first-last", counts_of_replicas, [0, 1, 1, 1]),
    ("a leaf of the module gets the sum of the gradients of its copies", "pass",
        "replicate.outputs replicate.gradients.summed replicate.gradients.agree",
        sums_gradients, None),
    ("each leaf has one node, which sums the gradients of all its copies", "pass", "",
        copies_by_node, ([1] * 6, 6)),
    ("a gradient is summed once all copies have theirs, while backward still runs", "pass", "",
        sums_during_backward, [True]),
    ("a parameter that no replica uses gets no gradient", "pass", "",
        lambda: names_with_gradients(0, 1), {"0.0.weight", "0.0.bias"}),
    ("backward raises an error if only some replicas use a parameter", "known",
        "divergences.FN-1.unused-stay-without-gradient", lambda: names_with_gradients(0),
        RuntimeError("All inputs of ReduceAdd must have the same size")),
    ("double backward through replicas raises an error", "known", "replicate.gradients.twice",
        differentiate_twice, RuntimeError("ReduceAdd can only be used during the backward pass")),
    ("a tied parameter is two tensors in a replica", "known", "replicate.tied-parameters",
        lambda: shared_tensors(replicate("tied")[1]), 0),
    ("no devices give no replicas", "pass", "replicate.no-device",
        lambda: replicate("tied", 0)[1:], []),
    ("outputs are in the order of the modules", "pass", "parallel_apply.order",
        lambda: end_in_turn((2, 1), (0, 2), (0, 3), (0, 4)), [1, 2, 3, 4]),
    ("an error is raised after all modules have ended", "pass",
        "parallel_apply.errors.after-all-have-ended",
        lambda: end_in_turn((2, 0), (0, 0), (0, -3), (0, 0)), ("module 3 failed", 4)),
    ("of several errors the first one in time is raised", "known",
        "parallel_apply.errors.lowest-index",
        lambda: end_in_turn((2, -1), (0, 0), (0, -3), (0, 0)), ("module 3 failed", 4)),
    ("an error has its own text, without replica and device", "known",
        "parallel_apply.errors.rewrapped",
        lambda: end_in_turn((0, 0), (0, -7)), ("module 7 failed", 2)),
    ("output i is moved to device i", "pass", "",
        lambda: devices_of(parallel_apply(torch.tanh, [ones(2)] * 3, SIM[:3])), SIM[:3]),
    ("without devices, output i is moved to the device of input i", "pass", "",
        lambda: devices_of(parallel_apply(current_device, [ones(2).to(each) for each in SIM])),
        SIM),
    ("device i is not made current for module i", "known",
        "parallel_apply.state.current-device",
        lambda: parallel_apply(current_device, [ones(1).to(SIM[1])], SIM[1:2])[0].item(), 0),
    ("another number of inputs than of modules raises a RuntimeError", "known",
        "parallel_apply.lengths", lambda: cpp().parallel_apply([make_module("tanh")], [], None),
        RuntimeError("Must have as many inputs as modules")),
    ("another number of devices than of modules raises a RuntimeError", "known",
        "parallel_apply.lengths", lambda: parallel_apply(torch.tanh, [ones(1)] * 2, SIM[:1]),
        RuntimeError("Must have as many devices as modules")),
    ("no modules give no outputs", "known", "parallel_apply.no-modules",
        lambda: parallel_apply(torch.tanh, []), []),
]
# fmt: on


@pytest.mark.parametrize("fact", FACTS, ids=[fact[0] for fact in FACTS])
def test_fact(topology, fact, record_property):
    says, verdict, ids, call, expected = fact
    for name in ids.split():
        record_property("clause", name)
    if isinstance(expected, Exception):
        with pytest.raises(type(expected), match=str(expected)):
            call()
    else:
        assert call() == expected
    if verdict == "known":
        record_property("failure", Failure("differs", (), says).dumps())
        pytest.xfail(f"known: {says}")


def test_the_front_end_has_no_functions_of_python(record_property):
    decided = {name for _, _, ids, *_ in FACTS for name in ids.split()}
    for name, clause in clauses.load().items():
        if name not in decided and clause.is_about_target:
            record_property("clause", name)
    record_property("declared", "torch.nn.parallel")
    pytest.skip("the C++ front end has no functions of Python, and no fact is about the clause")
