"""impl.distributed: the detection of ended ranks, with ranks in threads."""

import threading
import time
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from impl.distributed import liveness

SIZE = 3


@pytest.fixture
def make_check(monkeypatch):
    """A function that creates the check of a rank."""
    monkeypatch.setattr(dist, "get_world_size", lambda group: SIZE)
    monkeypatch.setattr(dist, "get_rank", lambda group: group.rank)
    monkeypatch.setattr(liveness, "_TIMEOUT", 2.0)

    def make(store, rank):
        group = SimpleNamespace(get_group_store=lambda: store, rank=rank)
        return liveness.LivenessCheck(group)

    return make


def test_a_rank_waits_until_all_live_ranks_have_checked(make_check):
    store, texts, has_waited = dist.HashStore(), {}, {}

    def run(rank):
        check = make_check(store, rank)
        time.sleep(rank / 2)  # Rank 1 starts later, so it finds later that rank 2 is missing.
        texts[rank] = check.run()
        has_waited[rank] = store.check([liveness._CHECKED.format(1 - rank)])

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(texts.values()) == {"rank 2 of 3 has ended or does not respond"}
    assert has_waited == {0: True, 1: True}


@pytest.mark.parametrize("places", [["here"] * SIZE, ["here", "here", "there"], ["here", "", ""]])
def test_a_check_ends_if_all_ranks_have_failed_in_one_place(make_check, places):
    store, texts = dist.HashStore(), {}
    checks = [make_check(store, rank) for rank in range(SIZE)]

    def run(rank):
        texts[rank] = checks[rank].run(places[rank])

    for _ in range(2):
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(SIZE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        is_one = len(set(places)) == 1
        text = f"a collective failed, though all {SIZE} ranks respond"
        assert set(texts.values()) == {None if is_one else text}
        assert {check.is_requested() for check in checks} == {not is_one}


class EndedStore:
    def check(self, keys):
        raise RuntimeError("connection closed")


def test_a_store_that_does_not_respond_is_hosted_by_rank_0_usually(make_check):
    assert "usually rank 0" in make_check(EndedStore(), 1).run()


def test_an_error_of_a_file_store_names_the_file_and_no_rank(make_check, tmp_path, monkeypatch):
    store = dist.PrefixStore("group", dist.FileStore(str(tmp_path / "store"), SIZE))
    check = make_check(store, 1)
    monkeypatch.setattr(check, "_is_set", EndedStore().check)
    text = check.run()
    assert "the file of the group's store" in text
    assert "rank 0" not in text
