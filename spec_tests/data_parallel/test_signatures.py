"""The parameters of the public functions of all chapters."""

from spec_tests.harness.compare.signatures import accepts_calls_of, public_functions
from spec_tests.harness.conformance.clauses import cases

MIB = 2**20


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """Do nothing. The parameters are the documented ones."""


#: For each clause, and each public name: a function with the documented parameters.
DOCUMENTED = {
    "comm.signatures": {
        "comm.scatter": (
            lambda tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None: ...
        ),
        "comm.broadcast": lambda tensor, devices=None, *, out=None: ...,
        "comm.broadcast_coalesced": lambda tensors, devices, buffer_size=10 * MIB: ...,
        "comm.reduce_add": lambda inputs, destination=None: ...,
        "comm.reduce_add_coalesced": (lambda inputs, destination=None, buffer_size=10 * MIB: ...),
        "comm.gather": lambda tensors, dim=0, destination=None, *, out=None: ...,
    },
    "functions.signatures": {
        "functions.Scatter.forward": (
            lambda ctx, target_gpus, chunk_sizes, dim, input: ...  # noqa: A006
        ),
        "functions.Scatter.backward": lambda ctx, *grads: ...,
        "functions.Gather.forward": lambda ctx, target_device, dim, *inputs: ...,
        "functions.Gather.backward": lambda ctx, grad_output: ...,
        "functions.Broadcast.forward": lambda ctx, target_gpus, *inputs: ...,
        "functions.Broadcast.backward": lambda ctx, *grads: ...,
        "functions.ReduceAddCoalesced.forward": (lambda ctx, destination, num_inputs, *grads: ...),
        "functions.ReduceAddCoalesced.backward": lambda ctx, *grads: ...,
    },
    "scatter_gather.signatures": {
        "scatter_gather.scatter": lambda inputs, target_gpus, dim=0: ...,
        "scatter_gather.scatter_kwargs": lambda inputs, kwargs, target_gpus, dim=0: ...,
        "scatter_gather.gather": lambda outputs, target_device, dim=0: ...,
        "scatter_gather.is_namedtuple": lambda obj: ...,
    },
    "replicate.signatures": {
        "replicate.replicate": lambda network, devices, detach=False: ...,
    },
    "parallel_apply.signatures": {
        "parallel_apply.parallel_apply": (
            lambda modules, inputs, kwargs_tup=None, devices=None: ...
        ),
        "parallel_apply.get_a_var": lambda obj: ...,
    },
    "data_parallel.signatures": {
        "data_parallel.DataParallel": (
            lambda module, device_ids=None, output_device=None, dim=0: ...
        ),
        "data_parallel.DataParallel.forward": lambda self, *inputs, **kwargs: ...,
        "data_parallel.DataParallel.scatter": lambda self, inputs, kwargs, device_ids: ...,
        "data_parallel.DataParallel.replicate": lambda self, module, device_ids: ...,
        "data_parallel.DataParallel.parallel_apply": lambda self, replicas, inputs, kwargs: ...,
        "data_parallel.DataParallel.gather": lambda self, outputs, output_device: ...,
        "data_parallel.data_parallel": data_parallel,
    },
}


@cases("name, documented", {name: [*table.items()] for name, table in DOCUMENTED.items()})
def test_function_has_the_documented_parameters(target, name, documented):
    part, _, function = name.partition(".")
    accepts_calls_of(getattr(target, part), {function: documented})


@cases("part", {name: [name.partition(".")[0]] for name in DOCUMENTED})
def test_functions_have_the_parameters_of_torch_nn_parallel(target, reference, part):
    module = reference.submodule("_functions" if part == "functions" else part)
    accepts_calls_of(getattr(target, part), public_functions(module))
