"""The thread that starts Ray: what is begun is done, whoever waits for it, and in a fork, too."""

from __future__ import annotations

import os
import threading
import time

import pytest

from nki_dist.runtime.ray_thread import RayThread


def test_all_is_done_by_one_thread_in_order() -> None:
    ray, done = RayThread(), []
    threads = [
        threading.Thread(target=ray.do, args=(lambda: done.append(threading.get_ident()),))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 4 and len(set(done)) == 1 and done[0] != threading.get_ident()
    assert ray.do(lambda: ray.do(threading.get_ident)) == done[0], "what is done may ask for more"


def test_errors_are_of_whoever_waits() -> None:
    with pytest.raises(KeyError, match="here"):
        RayThread().do(lambda: {}["here"])


def test_an_end_of_waiting_is_none_of_what_is_done() -> None:
    ray, done = RayThread(), []
    with pytest.raises(TimeoutError):
        ray.do(lambda: (time.sleep(0.2), done.append(1)), seconds=0.01)
    assert ray.do(lambda: list(done)) == [1], "the next waits for it"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_fork_has_a_thread_of_its_own() -> None:
    ray = RayThread()
    ray.do(int)
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writes, str(ray.do(os.getpid, seconds=10)).encode())
        finally:
            os._exit(0)
    os.close(writes)
    assert os.read(reads, 20).decode() == str(child)
    os.waitpid(child, 0)
    os.close(reads)
