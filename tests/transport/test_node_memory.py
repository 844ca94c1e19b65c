"""Memory of the processes of a node: made once, handed out, shared, and gone with the last."""

import gc
import multiprocessing
import os
import time

import numpy as np
import pytest

from nki_dist.core_actor import node_memory
from nki_dist.core_actor.folder import Folder
from nki_dist.core_actor.node_memory import NodeMemory, left_bytes


def joined(path, me, lines):
    """In a process of its own: enter, write into the part of another, say what one's own has."""
    folder = Folder(path)
    memory = NodeMemory.joined(folder, "memory", 3)
    memory.enter(me)
    while not all(map(memory.there, range(3))):
        time.sleep(0.001)
    memory.bytes[memory.begins((me + 1) % 3)] = 10 + me
    while not memory.bytes[memory.begins(me)]:
        time.sleep(0.001)
    lines.put((me, int(memory.bytes[memory.begins(me)])))
    memory.close()


def test_whoever_comes_first_makes_it_and_all_have_the_same(folder):
    spawn = multiprocessing.get_context("spawn")
    lines = spawn.SimpleQueue()
    made = [spawn.Process(target=joined, args=(folder.path, n, lines)) for n in range(3)]
    for process in made:
        process.start()
    found = [lines.get() for _ in range(3)]
    for process in made:
        process.join()
    assert sorted(found) == [(0, 12), (1, 10), (2, 11)]


def files():
    """Memories of this kind that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return sum("/memfd:memory " in name for name in found)


def test_nothing_is_left_of_one_that_nobody_comes_for(folder):
    before = files()
    memory = NodeMemory.joined(folder, "memory", 4)
    block = memory.bytes[memory.begins(2) :][:5]
    block[:] = 7
    memory.close()
    memory.close()
    del memory
    assert list(block) == [7] * 5  # arrays that somebody still has stay readable
    del block
    assert files() == before


def test_nothing_is_left_of_one_whose_links_are_closed(trios):
    """Before anybody collects garbage: it can be large."""
    before, trio = files(), trios()
    trio.send(0, 1, None)
    assert len(trio.links[1].poll()) == 1
    gc.disable()
    try:
        for links in trio.links:
            links.close()
        del links, trio.links[:], trio.memory
        assert files() == before
    finally:
        gc.enable()


def test_who_comes_when_its_maker_has_gone_gets_an_error(folder):
    NodeMemory.joined(folder, "memory", 2).close()
    with pytest.raises(OSError, match="memory"):
        NodeMemory.joined(folder, "memory", 2)
    with open(__file__) as other:  # in whose place another file is open
        os.unlink(folder.at("memory"))
        os.symlink(f"/proc/self/fd/{other.fileno()}", folder.at("memory"))
        with pytest.raises(OSError, match=r"memory|denied"):
            NodeMemory.joined(folder, "memory", 2)


def test_only_what_is_written_takes_memory(folder):
    memory = NodeMemory.joined(folder, "memory", 100)
    assert memory.size > 100 * 2**30 and memory.part * 100 == memory.size
    assert memory.place(memory.bytes[12:20]) == 12
    assert memory.place(np.zeros(3, np.uint8)) is None
    memory.close()


def test_what_is_left_is_what_the_group_may_use(tmp_path, monkeypatch):
    everything = left_bytes()
    assert 0 < everything <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr(node_memory, "CGROUP", tmp_path)
    for name, text in (("max", "3000"), ("current", "2500"), ("stat", "file 9\ninactive_file 400")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert left_bytes() == 900
    (tmp_path / "memory.max").write_text("max")
    assert left_bytes() > 900, "no limit, so what the machine has"
    (tmp_path / "memory.max").write_text("2500")
    assert left_bytes() == 400
