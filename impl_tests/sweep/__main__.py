"""Run each architecture of several packages alone and in wrappers, and publish the verdicts.

``python -m impl_tests.sweep``
    runs the architectures without a result in ``results.json``, so it continues an earlier run.
``python -m impl_tests.sweep PATTERN...``
    runs those whose names match a pattern, such as ``transformers/llama*``.

Each architecture runs in a process of its own. Several commands may run at the same time.
"""

import fcntl
import fnmatch
import multiprocessing
import os
import resource
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from impl_tests.consumers.programs_page import group_results, read_results, write_results
from spec_tests import cuda_stand_ins, simulator
from spec_tests.cuda_stand_ins import stub_libraries
from spec_tests.reporting import documents

#: Limits of a worker: seconds of processor time, and bytes.
_SECONDS, _BYTES = 90, 12 << 30
RESULTS = Path(__file__).with_name("results.json")
#: Modules that several models import. They are imported before the workers are forked.
_SHARED = ("bert", "llama", "clip", "llava", "whisper", "gemma3", "mixtral", "detr", "swin", "t5")


def _work(name: str, queue: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    warnings.simplefilter("ignore")
    from impl_tests.sweep import architectures, compare

    try:
        module, inputs = architectures.make(name)
    except Exception as error:
        queue.put({"error": f"{error}"[:400]})
        return
    simulator.enable(device_count=2)
    cuda_stand_ins.enable()
    try:
        queue.put(compare.judge(module, inputs))
    except Exception as error:
        queue.put({"error": f"alone: {type(error).__name__}: {error}"[:400]})


def _run(name: str) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=_work, args=(name, queue))
    process.start()
    process.join(40 * _SECONDS)  # Other programs may use the processors, too.
    process.kill()
    process.join()
    if queue.empty():
        return {"error": f"more than {_SECONDS} s or {_BYTES >> 30} GiB (exit {process.exitcode})"}
    result: dict[str, Any] = queue.get()
    return result


def _update(result: dict[str, Any]) -> dict[str, Any]:
    """Add a result to the file, which other runs may change at the same time; return all."""
    with RESULTS.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        results = {**read_results(RESULTS), **result}
        file.truncate()
        file.write(documents.dump_entries(group_results(results)) + "\n")
    return results


def main(patterns: list[str]) -> None:
    """Run the architectures that match a pattern, or those without a result."""
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for each in _SHARED:
        import_module(f"transformers.models.{each}.modeling_{each}")
    from impl_tests.sweep import architectures

    for name in architectures.names():
        chosen = any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
        if chosen or (not patterns and name not in _update({})):
            result = _run(name)
            print(name, *result.values(), flush=True)
            _update({name: {} if "error" in result else result})  # reasons.json has the reason
    write_results(RESULTS, group_results(_update({})))


if __name__ == "__main__":
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TORCHDYNAMO_DISABLE="1")
    stub_libraries.load_stubs()
    main(sys.argv[1:])
