"""``python -m impl_tests.models.families CHECKOUT [FAMILY ...]``: run transformers' model testers.

CHECKOUT is a git checkout of transformers. Its tests make a small configuration and inputs for
each family of models. As in the former test ``test_multi_gpu_data_parallel_forward``, each model
runs forward in evaluation mode on two simulated devices, wrapped by torch.nn.parallel and by impl.
Its outputs must equal those of the plain model for each chunk of the inputs. Without FAMILY, the
command runs all families and writes ``families.json``.
"""

import copy
import importlib
import os
import re
import subprocess
import sys
import unittest
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

import impl
from impl_tests import cuda_stubs, forks
from impl_tests.aligned_copies import align_copies
from impl_tests.models.comparison import find_output_differences
from impl_tests.models.model import NO_PARAMETERS_REASON, SHARED_HOOKS_REASON
from impl_tests.models.tensors import collect_tensors
from impl_tests.published import write_results
from spec_tests import cuda_stand_ins, simulator
from spec_tests.oracle.scatter_gather import gather, scatter

_FILE = Path(__file__).with_name("families.json")
_DEVICES = [0, 1]
_LIBRARIES = {"reference": nn.DataParallel, "impl": impl.DataParallel}
_NOT_RUN = "not run: "
#: Pattern of an error or a difference -> its published cause. Other texts are published as such.
_CAUSES = {
    "StopIteration": NO_PARAMETERS_REASON,
    "different elements|has the shape|in only one run": "the outputs differ",
    "zip\\(\\) argument|mat1 and mat2 shapes": SHARED_HOOKS_REASON,
    "on the same device": "the model keeps layers in a plain list, which the replicas share",
    "not iterable|Cache.__init__|LinearAttentionLayer": "an output cannot be iterated or rebuilt",
    f"{_NOT_RUN}(Import|Module|Name|OS).*Error": f"{_NOT_RUN}a package or a file is missing",
    f"{_NOT_RUN}.*Error": f"{_NOT_RUN}the tester needs more than the common test gives it",
}
#: The cause of failure by library; "" if the outputs are right.
Result = dict[str, str]


def run_family(checkout: Path, family: str, folder: Path) -> dict[str, Result]:
    """Return the result of each model class of a family."""
    torch.set_num_threads(1)
    results = {}
    for file in sorted((checkout / "tests" / "models" / family).glob("test_modeling_*.py")):
        try:
            for test in _make_tests(f"tests.models.{family}.{file.stem}"):
                for model_class in test.all_model_classes:
                    results[model_class.__name__] = _run_class(test, model_class)
                    print(family, model_class.__name__, results[model_class.__name__], flush=True)
        except Exception as error:
            results[file.stem] = _not_run(error)
            print(family, file.stem, results[file.stem], flush=True)
    return results


def _make_tests(module_name: str) -> Iterator[Any]:
    """Yield the test cases of a module that have a model tester."""
    mixin = importlib.import_module("tests.test_modeling_common").ModelTesterMixin
    for value in vars(importlib.import_module(module_name)).values():
        is_test = isinstance(value, type) and issubclass(value, unittest.TestCase)
        if is_test and issubclass(value, mixin) and value.__module__ == module_name:
            test = value()
            test.setUp()
            yield test


def _run_class(test: Any, model_class: Callable[[Any], nn.Module]) -> Result:
    try:
        config, inputs = test.model_tester.prepare_config_and_inputs_for_common()
        inputs = dict(test._prepare_for_class(inputs, model_class))
        inputs = tree_map_only(Tensor, lambda tensor: tensor.to(0), inputs)
        build = partial(_build, model_class, config)
        _call(build(), inputs)
    except Exception as error:
        return _not_run(error)
    chunks = scatter([inputs], [0, 0])
    if len(chunks) < len(_DEVICES):
        return _not_run("the tester's batch has one row")
    try:
        expected = _run_chunks(build, chunks, seed=0)
    except Exception:
        return _not_run("the first dimension of some inputs or outputs is not the batch")
    other_seed = partial(_run_chunks, build, chunks, seed=1)
    return {
        name: _run_wrapped(wrap(build(), _DEVICES), inputs, expected, other_seed)
        for name, wrap in _LIBRARIES.items()
    }


def _build(model_class: Callable[[Any], nn.Module], config: Any) -> nn.Module:
    torch.manual_seed(0)
    return model_class(copy.deepcopy(config)).to(0).eval()


def _run_chunks(
    build: Callable[[], nn.Module], chunks: Sequence[Any], seed: int
) -> dict[str, Tensor]:
    """Return the concatenated outputs of the plain model for each chunk."""
    outputs = [_call(build(), chunk, seed) for (chunk,) in chunks]
    gathered: dict[str, Tensor] = gather(outputs, "cpu")
    return gathered


def _run_wrapped(
    wrapped: Any,
    inputs: dict[str, Any],
    expected: dict[str, Tensor],
    other_seed: Callable[[], dict[str, Tensor]],
) -> str:
    """Return the cause of the failure. ``other_seed`` returns the outputs for another seed."""
    devices: set[torch.device] = set()

    def note_devices(module: nn.Module, args: Any, kwargs: Any) -> None:
        devices.update(leaf.device for leaf in tree_leaves(kwargs) if isinstance(leaf, Tensor))

    wrapped.module.register_forward_pre_hook(note_devices, with_kwargs=True)
    try:
        output = _call(wrapped, inputs)
    except Exception as error:
        return _explain(repr(error))
    if len(devices) != len(_DEVICES):
        return f"the model runs on {devices}"
    differences = find_output_differences(output, expected, ())
    if differences and find_output_differences(other_seed(), expected, ()):
        return ""  # The model draws random numbers.
    return _explain("; ".join(differences))


def _call(model: nn.Module, inputs: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Return the tensors of the output, without those of caches."""
    torch.manual_seed(seed)
    with torch.no_grad():
        output = collect_tensors(model(**tree_map_only(Tensor, torch.clone, inputs)))
    return {path: tensor for path, tensor in output.items() if not re.search("past_|cache", path)}


def _not_run(reason: object) -> Result:
    text = repr(reason) if isinstance(reason, Exception) else reason
    return dict.fromkeys(_LIBRARIES, _explain(f"{_NOT_RUN}{text}"))


def _explain(text: str) -> str:
    return next((cause for pattern, cause in _CAUSES.items() if re.search(pattern, text)), text)


def summarize(families: Mapping[str, Mapping[str, Result]]) -> dict[str, Any]:
    """Return the number of right model classes, and the families by their outcomes."""
    results = [result for classes in families.values() for result in classes.values()]
    run = sum(not result["impl"].startswith(_NOT_RUN) for result in results)
    right = {name: sum(result[name] == "" for result in results) for name in _LIBRARIES}
    outcomes: dict[tuple[str, ...], list[str]] = {}
    for family, classes in families.items():
        causes = [[result[name] for result in classes.values()] for name in _LIBRARIES]
        outcomes.setdefault(tuple(max(each, key=_severity) for each in causes), []).append(family)
    rows = [{**dict(zip(_LIBRARIES, o, strict=True)), "families": outcomes[o]} for o in outcomes]
    return {
        "classes": {"run": run, **right},
        **{str(number): row for number, row in enumerate(rows, start=1)},
    }


def _severity(cause: str) -> int:
    """Return 2 for a failure, 1 for a class that does not run, and 0 for right outputs."""
    return 0 if cause == "" else 1 if cause.startswith(_NOT_RUN) else 2


def _prepare(checkout: Path) -> None:
    """Register the devices and import transformers; use no device, so that forks may use them."""
    sys.path[:0] = [str(checkout / "src"), str(checkout)]
    os.environ |= {"TRANSFORMERS_TEST_DEVICE": "cpu", "HF_HUB_OFFLINE": "1"}
    warnings.simplefilter("ignore")
    cuda_stubs.load_stubs()
    simulator.enable(len(_DEVICES))
    cuda_stand_ins.enable()
    align_copies()
    importlib.import_module("transformers").logging.set_verbosity_error()
    importlib.import_module("tests.test_modeling_common")


def main(folder: str, *families: str) -> None:
    """Run families and print their results; write the results of all families."""
    checkout = Path(folder).resolve()
    _prepare(checkout)
    files = sorted((checkout / "tests" / "models").glob("*/test_modeling_*.py"))
    names = families or dict.fromkeys(file.parent.name for file in files)
    jobs = (forks.Job(name, partial(run_family, checkout, name)) for name in names)
    results: dict[str, dict[str, Result]] = {}
    for ended in forks.run(jobs, processes=1):
        print(ended.log, end="", flush=True)
        crash = {"family": _not_run("the process hangs or crashes")}
        if ended.result != {}:  # The family has a model tester.
            results[ended.job.subject] = ended.result or crash
    if not families:
        transformers = importlib.import_module("transformers").__version__
        git = ["git", "-C", folder, "log", "-1", "--format=commit %h of %cs"]
        commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
        versions = f"transformers {transformers} ({commit}), torch {torch.__version__}"
        write_results(_FILE, {"versions": versions, **summarize(results)})


if __name__ == "__main__":
    main(*sys.argv[1:])
