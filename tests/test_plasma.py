"""shared_hbm on plasma: two actors and the owner share one mapping, and what is refused."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import sys

import ml_dtypes
import numpy as np
import pytest

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402
from ray.experimental import get_object_locations  # noqa: E402

from nki_dist.errors import LaunchError, OutOfMemoryError  # noqa: E402
from nki_dist.hbm import plasma  # noqa: E402
from nki_dist.hbm.plasma import HbmStack, map_readonly, map_writable, put_readonly  # noqa: E402

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
        memory = self.stack.memory
        return os.getpid(), memory.size, memory.ctypes.data % plasma.ALIGNMENT

    def store(self, offset, values):
        self.stack.memory[offset : offset + len(values)] = list(values)

    def load(self, offset, count):
        return bytes(self.stack.memory[offset : offset + count])

    def keep_only_slice(self, offset, count):
        self.part = self.stack.memory[offset : offset + count]
        del self.stack
        gc.collect()

    def load_slice(self):
        return bytes(self.part)

    def describe_input(self, handles):
        array = map_readonly(handles[0])
        return array.dtype, array.shape, array.flags.writeable, float(array.sum(dtype=np.float64))

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


def test_ensure_moves_only_when_it_must_and_at_least_doubles(cluster, cores):
    stack = HbmStack.create(2 * MiB)
    assert stack.generation == 1
    assert not stack.ensure(2 * MiB)
    old = stack.memory
    old[:3] = 5
    assert stack.ensure(2 * MiB + 1)
    assert (stack.generation, stack.capacity) == (2, 4 * MiB)
    assert not stack.memory.any(), "a moved stack starts from zero bytes"
    assert old[:3].tolist() == [5, 5, 5], "a view of the old object stays valid"
    ray.get(cores[0].map.remote(stack.handle))
    ray.get(cores[0].store.remote(0, b"new"))
    assert bytes(stack.memory[:3]) == b"new"
    stack.close()


def test_ensure_takes_the_exact_size_when_doubling_does_not_fit(cluster):
    stack = HbmStack.create(52 * MiB)
    assert stack.ensure(60 * MiB)
    assert stack.capacity == 60 * MiB
    stack.close()


def test_larger_than_the_object_store_is_out_of_memory(cluster):
    with pytest.raises(OutOfMemoryError) as caught:
        HbmStack.create(STORE)
    assert str(STORE) in caught.value.message
    assert "object_store_memory" in caught.value.message
    assert "NKI_DIST_OBJECT_STORE_BYTES" in caught.value.message
    with pytest.raises(OutOfMemoryError, match=f"of {STORE + 1} bytes"):
        put_readonly(np.zeros(STORE + 1, np.uint8))


def test_failed_growth_closes_the_stack_and_less_starts_it_again(cluster):
    stack = HbmStack.create(MiB)
    with pytest.raises(OutOfMemoryError):
        stack.ensure(2 * STORE)
    assert stack.capacity == 0
    with pytest.raises(LaunchError, match="closed"):
        stack.handle.ref.hex()
    assert stack.ensure(MiB)
    assert stack.capacity == MiB
    stack.close()


def test_stack_of_an_earlier_ray_session_is_made_anew(stack):
    stack._node_id = "0" * 56  # node ids are random: no later session has the same
    assert stack.ensure(1)
    assert stack.handle.node_id == ray.get_runtime_context().get_node_id()
    assert not stack.ensure(1)


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
    locations = get_object_locations([stack.ref, unmapped, *pressure])
    assert not locations[stack.ref]["did_spill"]
    assert any(locations[ref]["did_spill"] for ref in (unmapped, *pressure))
    assert ray.get(stack.ref).ctypes.data == address, "the object never moved"
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


def test_get_on_another_node_copies_so_the_refusal_is_needed(stack, remote_core):
    node = ray.get(remote_core.make_stack.remote(MiB)).node_id
    assert node != stack.handle.node_id
    lie = dataclasses.replace(stack.handle, node_id=node)
    ray.get(remote_core.map.remote(lie))
    ray.get(remote_core.store.remote(0, b"lost"))
    assert not stack.memory[:4].any()


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


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((7, 3, 5), np.float32),
        ((3, 5), ml_dtypes.bfloat16),
        ((), np.int32),
        ((0, 4), np.float16),
        ((33, 9), ml_dtypes.float8_e4m3),
    ],
)
def test_readonly_input_is_shared_without_a_copy(cluster, cores, shape, dtype):
    values = (np.arange(np.prod(shape, dtype=int)) % 13).reshape(shape).astype(dtype)
    ref = put_readonly(values)
    array = map_readonly(ref)
    assert array.dtype == values.dtype
    assert not array.flags.writeable
    np.testing.assert_array_equal(array, values)
    if array.size:
        assert _permissions(array) == "rw-s"
    seen = ray.get(cores[1].describe_input.remote([ref]))
    assert seen == (values.dtype, shape, False, float(values.sum(dtype=np.float64)))


def test_readonly_input_may_be_strided_and_is_copied_once(cluster):
    source = np.arange(24.0).reshape(4, 6)
    ref = put_readonly(source.T[::2])
    expected = source.T[::2].copy()
    source[:] = -1
    np.testing.assert_array_equal(map_readonly(ref), expected)


def test_readonly_input_of_python_objects_is_refused(cluster):
    with pytest.raises(LaunchError, match="Python objects"):
        put_readonly(np.array([{}, []], dtype=object))


def test_reads_on_another_node_see_the_input(cluster, remote_core):
    values = np.arange(11, dtype=np.float32)
    seen = ray.get(remote_core.describe_input.remote([put_readonly(values)]))
    assert seen == (values.dtype, (11,), False, 55.0)


def test_without_ray_it_says_so(monkeypatch):
    monkeypatch.setattr(plasma.ray, "is_initialized", lambda: False)
    with pytest.raises(LaunchError, match="isn't running"):
        HbmStack.create(MiB)
