"""Work that several threads enqueue."""

from torch import Tensor

from .program import copy_to, current_stream, empty, new_stream, race_program, run_in_thread


@race_program("streams")
def host_wait_in_one_thread_counts_for_all_threads(correct: bool) -> Tensor:
    side, results = new_stream(0), []

    def work() -> None:
        with side:
            results.append(copy_to(0))
        if correct:
            side.synchronize()

    run_in_thread(work)
    results[0].record_stream(current_stream(0))
    return results[0]


@race_program("model")
def two_threads_on_one_stream_are_ordered(correct: bool) -> Tensor:
    first, second, copied = new_stream(0), new_stream(0), []

    def fill() -> None:
        with first:
            copied.append(copy_to(0))

    def read() -> None:
        with first if correct else second:
            copied.append(empty(0).copy_(copied[0]))
            current_stream(0).synchronize()

    run_in_thread(fill)
    run_in_thread(read)
    copied[0].record_stream(second)
    return copied[1]
