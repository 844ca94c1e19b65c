"""shared_hbm on plasma: two actors and the owner share one mapping, and what is refused."""

import dataclasses
import gc
import os
import signal
import sys

import numpy as np
import pytest

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402
from ray.experimental import get_object_locations  # noqa: E402

from nki_dist.errors import LaunchError, OutOfMemoryError  # noqa: E402
from nki_dist.hbm import plasma  # noqa: E402
from nki_dist.hbm.plasma import HbmStack, map_writable  # noqa: E402

MiB = 1 << 20
STORE = 80 * MiB


@pytest.fixture(scope="module")
def cluster():
    """Two nodes on this machine, each with its own object store; we are on the first."""
    ray.shutdown()
    # Workers can't import this file by name, so its actor class travels by value.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    nodes.add_node(num_cpus=1, object_store_memory=STORE, resources={"other": 1})
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    yield nodes
    ray.shutdown()
    nodes.shutdown()
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class _Core:
    """An actor that maps a stack; each method is one thing a core does."""

    def map(self, handle):
        self.stack = map_writable(handle)
        return os.getpid(), self.stack.size, self.stack.ctypes.data % plasma.ALIGNMENT

    def store(self, offset, values):
        self.stack[offset : offset + len(values)] = list(values)

    def load(self, offset, count):
        return bytes(self.stack[offset : offset + count])

    def keep_only_slice(self, offset, count):
        self.part = self.stack[offset : offset + count]
        del self.stack
        gc.collect()

    def load_slice(self):
        return bytes(self.part)

    def mappings_of_puts(self, sizes):
        arrays = [ray.get(ray.put(np.ones(size, np.uint8))) for size in sizes]
        return [_permissions(array) for array in arrays]

    def make_stack(self, capacity):
        self.owned = HbmStack.create(capacity)
        return self.owned.handle


Core = ray.remote(num_cpus=0)(_Core)


def _permissions(array):
    with open("/proc/self/maps") as maps:
        return plasma._mapping_at(array.ctypes.data, maps.read()).permissions


@pytest.fixture(scope="module")
def cores(cluster):
    return [Core.options(resources={"node:__internal_head__": 0.01}).remote() for _ in range(2)]


@pytest.fixture(scope="module")
def remote_core(cluster):
    return Core.options(resources={"other": 0.01}).remote()


@pytest.fixture
def stack(cluster):
    stack = HbmStack.create(3 * MiB + 17)
    yield stack
    stack.close()


def _fill_store(count=6, size=20 * MiB):
    """More primary copies than the store holds, so that Ray spills whatever it may."""
    return [ray.put(np.full(size, index, np.uint8)) for index in range(count)]


def test_store_by_one_core_is_seen_by_the_other_and_by_the_owner(stack, cores):
    first, second = ray.get([core.map.remote(stack.handle) for core in cores])
    assert len({first[0], second[0], os.getpid()}) == 3
    assert first[1:] == second[1:] == (stack.capacity, 0)
    ray.get(cores[0].store.remote(5, b"left"))
    ray.get(cores[1].store.remote(stack.capacity - 5, b"right"))
    stack.memory[9:12] = [7, 8, 9]
    assert ray.get(cores[1].load.remote(5, 7)) == b"left\x07\x08\x09"
    assert ray.get(cores[0].load.remote(stack.capacity - 5, 5)) == b"right"
    assert bytes(stack.memory[5:9]) == b"left"


def test_new_stack_is_zero_aligned_writable_and_large_enough(stack):
    assert stack.capacity >= 3 * MiB + 17
    assert stack.memory.ctypes.data % plasma.ALIGNMENT == 0
    assert stack.memory.flags.writeable
    assert not stack.memory.any()


def test_alignment_does_not_depend_on_where_the_object_starts():
    buffer = np.zeros(400, np.uint8)
    for start in (0, 1, 13, 63):
        memory = plasma._aligned(buffer[start:], 200)
        assert memory.ctypes.data % plasma.ALIGNMENT == 0
        assert memory.size == 200


def test_larger_than_the_object_store_is_out_of_memory(cluster):
    with pytest.raises(OutOfMemoryError) as caught:
        HbmStack.create(STORE)
    assert str(STORE) in caught.value.message
    assert "object_store_memory" in caught.value.message
    assert "NKI_DIST_OBJECT_STORE_BYTES" in caught.value.message


def test_stack_survives_the_death_of_a_core_that_maps_it(stack, cluster):
    doomed = Core.options(resources={"node:__internal_head__": 0.01}).remote()
    pid = ray.get(doomed.map.remote(stack.handle))[0]
    ray.get(doomed.store.remote(1, b"last words"))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(doomed.load.remote(0, 1))
    assert bytes(stack.memory[:11]) == b"\x00last words"


@pytest.mark.parametrize("size", [0, -3])
def test_size_must_be_positive(cluster, size):
    with pytest.raises(LaunchError, match="positive"):
        HbmStack.create(size)


@pytest.mark.slow
def test_full_store_is_out_of_memory_rather_than_a_file_on_disk(cluster):
    keep = [HbmStack.create(24 * MiB) for _ in range(2)]
    with pytest.raises(OutOfMemoryError, match="in use"):
        HbmStack.create(40 * MiB)
    keep.pop().close()
    HbmStack.create(12 * MiB).close()
    for stack in keep:
        stack.close()


def test_memory_pressure_spills_unmapped_objects_but_never_an_open_stack(cluster, cores):
    stack = HbmStack.create(30 * MiB)
    unmapped = ray.put(np.zeros(10 * MiB, np.uint8))
    address = stack.memory.ctypes.data
    ray.get(cores[0].map.remote(stack.handle))
    stack.memory[11] = 111
    pressure = _fill_store()
    locations = get_object_locations([stack.handle.ref, unmapped, *pressure])
    assert not locations[stack.handle.ref]["did_spill"]
    assert any(locations[ref]["did_spill"] for ref in (unmapped, *pressure))
    assert ray.get(stack.handle.ref).ctypes.data == address, "the object never moved"
    ray.get(cores[0].store.remote(12, b"\xde"))
    assert stack.memory[11:13].tolist() == [111, 0xDE]
    assert ray.get(cores[0].load.remote(11, 1)) == b"\x6f"
    stack.close()


def test_view_keeps_its_pages_after_stack_and_reference_are_gone(cluster, cores):
    stack = HbmStack.create(2 * MiB)
    ray.get(cores[1].map.remote(stack.handle))
    ray.get(cores[1].store.remote(100, b"keep me"))
    ray.get(cores[1].keep_only_slice.remote(100, 7))
    mine = stack.memory[3 : 3 + 97 + 7][97:]
    stack.close()
    gc.collect()
    pressure = _fill_store()  # would reuse the pages if they were free
    assert ray.get(cores[1].load_slice.remote()) == b"keep me"
    assert bytes(mine) == b"keep me"
    assert len(pressure) == 6


def test_core_on_another_node_is_refused(stack, remote_core):
    with pytest.raises(LaunchError, match="own node") as caught:
        ray.get(remote_core.map.remote(stack.handle))
    assert stack.handle.node_id in caught.value.message


def test_stack_of_another_node_is_made_and_mapped_there(remote_core):
    handle = ray.get(remote_core.make_stack.remote(MiB))
    ray.get(remote_core.map.remote(handle))
    ray.get(remote_core.store.remote(1, b"there"))
    assert ray.get(remote_core.load.remote(0, 6)) == b"\x00there"
    with pytest.raises(LaunchError, match="own node"):
        map_writable(handle)


def test_objects_of_every_size_lie_in_shared_memory(cluster, cores):
    sizes = [1, 63, 1000, 10_001, 99_999, 100_000, 300_001]
    assert ray.get(cores[0].mappings_of_puts.remote(sizes)) == ["rw-s"] * len(sizes)
    here = [ray.get(ray.put(np.ones(size, np.uint8))) for size in sizes]
    assert [_permissions(array) for array in here] == ["rw-s"] * len(sizes)


def test_heap_memory_and_foreign_objects_are_not_mapped(stack):
    with pytest.raises(LaunchError, match="rw-p"):
        plasma._require_shared(np.zeros(1000, np.uint8))
    foreign = dataclasses.replace(stack.handle, ref=ray.put({"not": "a stack"}))
    with pytest.raises(LaunchError, match="got dict"):
        map_writable(foreign)


def test_without_ray_it_says_so(monkeypatch):
    monkeypatch.setattr(plasma.ray, "is_initialized", lambda: False)
    with pytest.raises(LaunchError, match="isn't running"):
        HbmStack.create(MiB)
