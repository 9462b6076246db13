"""data_parallel and DataParallel on a machine without an accelerator."""

from spec_tests.machine.clauses import clause
from spec_tests.machine.processes import run_without_accelerator


@clause("data_parallel.no-accelerator.class")
def test_without_an_accelerator_the_class_only_calls_the_module(target):
    done = run_without_accelerator(
        """
        module = nn.Linear(2, 1)
        wrapped = target.data_parallel.DataParallel(module, [0, 1], dim=1)
        x = torch.ones(3, 2)
        print(wrapped.device_ids, torch.equal(wrapped(x), module(x)), list(wrapped.state_dict()))
        print(torch.equal(wrapped(input=x), module(x)))
        print([hasattr(wrapped, name) for name in ("dim", "output_device", "src_device_obj")])
        try:
            wrapped(torch.ones(3, 3))
        except RuntimeError as error:
            print("Caught" in str(error))
        """,
        target,
    )
    assert done.stdout.splitlines() == [
        "[] True ['module.weight', 'module.bias']",
        "True",
        "[False, False, False]",
        "False",
    ], done.stderr


@clause("data_parallel.no-accelerator.callables")
def test_without_an_accelerator_the_class_calls_a_function(target):
    done = run_without_accelerator(
        """
        for function in (lambda x: 2 * x, torch.neg):
            for devices in (None, [0], [0, 1]):
                print(target.data_parallel.DataParallel(function, devices)(torch.ones(1)).item())
        """,
        target,
    )
    assert done.stdout.split() == ["2.0"] * 3 + ["-1.0"] * 3, done.stderr


@clause("data_parallel.no-accelerator.function")
def test_without_an_accelerator_the_function_raises_an_error(target):
    done = run_without_accelerator(
        """
        for devices in (None, [0], [0, 1]):
            try:
                target.data_parallel.data_parallel(nn.Linear(2, 1), torch.ones(3, 2), devices)
            except RuntimeError as error:
                print(error)
        """,
        target,
    )
    expected = ["device type could not be determined"] * 3
    assert done.stdout.splitlines() == expected, done.stderr
