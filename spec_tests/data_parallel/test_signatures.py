"""The parameters of all public functions."""

from spec_tests.checks.signatures import check_calls_accepted, public_functions
from spec_tests.machine.clauses import cases

MIB = 2**20


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """Do nothing. The parameters are the documented ones."""


#: For each clause about the functions of a part: functions with the documented parameters.
DOCUMENTED = {
    "comm.signatures": {
        "scatter": (
            lambda tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None: ...
        ),
        "broadcast": lambda tensor, devices=None, *, out=None: ...,
        "broadcast_coalesced": lambda tensors, devices, buffer_size=10 * MIB: ...,
        "reduce_add": lambda inputs, destination=None: ...,
        "reduce_add_coalesced": lambda inputs, destination=None, buffer_size=10 * MIB: ...,
        "gather": lambda tensors, dim=0, destination=None, *, out=None: ...,
    },
    "functions.signatures": {
        "Scatter.forward": lambda ctx, target_gpus, chunk_sizes, dim, input: ...,  # noqa: A006
        "Scatter.backward": lambda ctx, *grads: ...,
        "Gather.forward": lambda ctx, target_device, dim, *inputs: ...,
        "Gather.backward": lambda ctx, grad_output: ...,
        "Broadcast.forward": lambda ctx, target_gpus, *inputs: ...,
        "Broadcast.backward": lambda ctx, *grads: ...,
        "ReduceAddCoalesced.forward": lambda ctx, destination, num_inputs, *grads: ...,
        "ReduceAddCoalesced.backward": lambda ctx, *grads: ...,
    },
    "scatter_gather.signatures": {
        "scatter": lambda inputs, target_gpus, dim=0: ...,
        "scatter_kwargs": lambda inputs, kwargs, target_gpus, dim=0: ...,
        "gather": lambda outputs, target_device, dim=0: ...,
        "is_namedtuple": lambda obj: ...,
    },
    "replicate.signatures": {"replicate": lambda network, devices, detach=False: ...},
    "parallel_apply.signatures": {
        "parallel_apply": lambda modules, inputs, kwargs_tup=None, devices=None: ...,
        "get_a_var": lambda obj: ...,
    },
    "data_parallel.signatures": {
        "DataParallel": lambda module, device_ids=None, output_device=None, dim=0: ...,
        "DataParallel.forward": lambda self, *inputs, **kwargs: ...,
        "DataParallel.scatter": lambda self, inputs, kwargs, device_ids: ...,
        "DataParallel.replicate": lambda self, module, device_ids: ...,
        "DataParallel.parallel_apply": lambda self, replicas, inputs, kwargs: ...,
        "DataParallel.gather": lambda self, outputs, output_device: ...,
        "data_parallel": data_parallel,
    },
}
PARTS = {clause: clause.partition(".")[0] for clause in DOCUMENTED}


@cases(
    "part, name, documented",
    {
        clause: [(part, *function) for function in DOCUMENTED[clause].items()]
        for clause, part in PARTS.items()
    },
)
def test_function_has_the_documented_parameters(target, part, name, documented):
    check_calls_accepted(getattr(target, part), {name: documented})


@cases("part", {clause: [part] for clause, part in PARTS.items()})
def test_functions_have_the_parameters_of_torch_nn_parallel(target, reference, part):
    submodule = {"functions": "_functions"}.get(part, part)
    expected = public_functions(reference.submodule(submodule))
    check_calls_accepted(getattr(target, part), expected)
