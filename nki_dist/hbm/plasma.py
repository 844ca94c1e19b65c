"""shared_hbm of one HBM stack on Ray's object store, mapped writable by every core of the stack.

One plasma object holds the whole shared_hbm of a stack. The process that owns it (`HbmStack`) and
the core actors of the same node (`map_writable`) all store into the same pages, without copies.

Invariants:
- While a `HbmStack` is open it holds the reference *and* a mapping. Both matter: a reference alone
  keeps the object alive, but the store may still spill it to disk and later drop the restored copy,
  stores included; it never spills or moves an object that some process has mapped.
- A writable view owns the mapping it lies in (through `ndarray.base`), so it and all slices of it
  stay valid for as long as anyone holds them, whatever happens to the handle, the reference or the
  stack.
- Nobody gets a writable view before it is proven to lie in pages shared between processes, on the
  node of the stack. On another node Ray would silently hand out a copy.

Not modelled here: what lies where in the stack, the order of stores (no locks: messages between
cores give the order), initial poison. Needs an open `ray.init`; not thread-safe.

`docs/tricks.md` argues why this is safe and lists what would break it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import ray
import ray.exceptions

from nki_dist.errors import LaunchError, OutOfMemoryError
from nki_dist.hbm.alias import Alias
from nki_dist.hbm.nodes import here, node_of, titled
from nki_dist.hbm.pages import pages_of
from nki_dist.ops.alignment import ALIGNMENT

Bytes = npt.NDArray[np.uint8]
Ref: TypeAlias = "ray.ObjectRef[Any]"

_GRANULE: Final = 1 << 20
_LOOPBACK: Final = ("127.0.0.1", "::1")  # addresses of a Ray that is for one machine alone
_LOCAL_STORE: Final = (
    "give Ray a larger object store: ray.init(object_store_memory=BYTES) before the first launch, "
    "or set NKI_DIST_OBJECT_STORE_BYTES"
)
_CLUSTER_STORE: Final = (
    "start Ray there with a larger object store (`ray start --object-store-memory=BYTES`; KubeRay: "
    "object-store-memory in rayStartParams of the node's group, and a /dev/shm as large, an "
    "emptyDir with medium: Memory; ray.init(object_store_memory=BYTES) in a program that starts "
    "this Ray itself), or use more nodes; NKI_DIST_OBJECT_STORE_BYTES is for a Ray that a world "
    "starts"
)


@dataclass(frozen=True)
class StackHandle:
    """What an actor needs to map a stack; small, and safe to pass as an argument of an actor call.

    Attributes:
        ref: the plasma object. Ray leaves a reference inside another object alone, so the actor
            gets the reference and not a fetched value.
        node_id: the node whose object store holds the primary copy.
        capacity: usable bytes.
    """

    ref: Ref
    node_id: str
    capacity: int


class HbmStack:
    """The owner's side of one stack's shared_hbm: creates it and keeps it in memory.

    Life cycle: `create` → `close`. A stack belongs to the node of the
    process that creates it, so a launcher makes one for another node from an actor on that node.
    """

    def __init__(self, handle: StackHandle, memory: Bytes) -> None:
        self._open: tuple[StackHandle, Bytes] | None = handle, memory

    @classmethod
    def create(cls, capacity_bytes: int) -> HbmStack:
        """A stack of at least `capacity_bytes` on this node; all its bytes are zero.

        Raises:
            OutOfMemoryError: the object store of this node can't hold it in memory.
            LaunchError: Ray isn't running here, or its objects aren't shared memory.
        """
        if capacity_bytes <= 0:
            raise LaunchError(
                f"a shared_hbm stack needs a positive size, got {capacity_bytes}",
                code="stack-size",
                numbers={"got": capacity_bytes, "least": 1},
            )
        capacity = -(-capacity_bytes // _GRANULE) * _GRANULE
        ref, memory = _put_zeros(capacity)
        return cls(StackHandle(ref, here(), capacity), memory)

    def _parts(self) -> tuple[StackHandle, Bytes]:
        if self._open is None:
            raise LaunchError("this shared_hbm stack is closed", code="stack-closed")
        return self._open

    @property
    def memory(self) -> Bytes:
        """(capacity,) uint8, writable, the same bytes the cores see."""
        return self._parts()[1]

    @property
    def capacity(self) -> int:
        """Usable bytes; 0 when closed."""
        return 0 if self._open is None else self._open[1].size

    @property
    def handle(self) -> StackHandle:
        """What to send to the actors of this node."""
        return self._parts()[0]

    def close(self) -> None:
        """Let go of the object; views that somebody still holds stay valid. Idempotent."""
        self._open = None


def map_writable(handle: StackHandle) -> Bytes:
    """Map the stack of `handle` into this process: (capacity,) uint8 that all who map it share.

    Raises:
        LaunchError: this process is on another node, or the object is gone or not shared memory.
    """
    _require_ray()
    if here() != handle.node_id:
        # Checked before the get: on another node it would succeed and return a private copy.
        raise LaunchError(
            f"shared_hbm of a stack can only be mapped on its own node {handle.node_id}, "
            f"but this core runs on node {here()}: place all cores of a stack on one node",
            code="stack-mapping",
        )
    try:
        array = ray.get(handle.ref)
    except ray.exceptions.RayError as error:
        raise LaunchError(
            f"the shared_hbm object of this stack is gone: {error}", code="stack-lost"
        ) from error
    _require_shared(array)
    return _aligned(_writable(array), handle.capacity)


class _Mapping(NamedTuple):
    """The line of /proc/self/maps that covers an address."""

    permissions: str
    path: str


def _writable(array: Bytes) -> Bytes:
    """A writable face of a read-only array, whose buffer is what keeps the object pinned."""
    return np.asarray(Alias(array.ctypes.data, array.size, array))


def _aligned(memory: Bytes, capacity: int) -> Bytes:
    """`capacity` bytes from the first aligned address on.

    Every process skips the same number of bytes: mappings start at page boundaries, so an address
    has the same remainder modulo `ALIGNMENT` everywhere. (Ray aligns to 64 today: nothing to skip.)
    """
    skip = -memory.ctypes.data % ALIGNMENT
    return memory[skip : skip + capacity]


def _put_zeros(capacity: int) -> tuple[Ref, Bytes]:
    """A new object in shared memory and its writable view.

    `np.zeros` of this size is the kernel's one zero page mapped many times, so the source of the
    copy takes neither memory nor time; what a put costs is the first touch of the store's pages.
    """
    _require_ray()
    _require_capacity(capacity + ALIGNMENT)
    ref = _put(np.zeros(capacity + ALIGNMENT, np.uint8), capacity)
    array = ray.get(ref)
    mapping = _require_shared(array)
    if _session_name() in mapping.path:
        # When everything in the store is in use, Ray puts the object in a file of its session
        # directory instead: correct, but at the speed and at the expense of the disk.
        del ref, array
        node = _node()
        raise OutOfMemoryError(
            f"shared_hbm of a stack needs {capacity} bytes, but the rest of {_whose(node)} object "
            f"store of {_store_bytes(node)} bytes is in use or in pieces; {_how_to_raise(node)}",
            code="object-store-full",
            numbers={"got": capacity},
        )
    return ref, _aligned(_writable(array), capacity)


def put_bytes(data: bytes) -> Ref:
    """Bytes as an object that actors fetch.

    Raises:
        OutOfMemoryError: the object store of this node can't hold it in memory.
    """
    _require_ray()
    _require_capacity(len(data))
    return _put(data, len(data))


def _put(value: Any, size: int) -> Ref:
    try:
        return ray.put(value)
    except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
        node = _node()
        raise OutOfMemoryError(
            f"no room for {size} bytes in {_whose(node)} object store of {_store_bytes(node)} "
            f"bytes; {_how_to_raise(node)}",
            code="object-store-full",
            numbers={"got": size},
        ) from error


def _require_ray() -> None:
    # ray.put and ray.get would start a cluster with default sizes behind the user's back.
    if not ray.is_initialized():
        raise LaunchError(
            "shared_hbm lives in Ray's object store, but Ray isn't running here",
            code="stack-mapping",
        )


def _require_capacity(need: int) -> None:
    """Refuse at once what can never fit; Ray would wait two seconds and then use the disk.

    Also what would find no pages, which would end this process: see `pages`.
    """
    node = _node()
    capacity = _store_bytes(node)
    if need > capacity:
        raise OutOfMemoryError(
            f"shared_hbm needs an object of {need} bytes, but {_whose(node)} object store holds "
            f"{capacity} bytes in all; {_how_to_raise(node)}",
            code="object-store-full",
            numbers={"got": need, "most": capacity},
        )
    pages = pages_of(node["ObjectStoreSocketName"])
    if pages is not None and not pages.enough(need):
        raise OutOfMemoryError(
            f"shared_hbm needs {need} bytes, but {pages.directory}, where {_whose(node)} object "
            f"store lies, has {pages.free} bytes left for all programs (df {pages.directory}): "
            "remove files that nobody needs there, or give the machine or container more shared "
            "memory (docker run --shm-size=; a pod: an emptyDir with medium: Memory at /dev/shm)",
            code="object-store-full",
            numbers={"got": need, "most": pages.free},
        )


def _require_shared(array: Any) -> _Mapping:
    """Prove that stores to `array`'s bytes reach other processes.

    Heap memory (a small value sent inline, Ray's local mode) would lose them, a read-only mapping
    would end the process with a segmentation fault.
    """
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 1:
        raise LaunchError(
            f"not the object of a shared_hbm stack: got {type(array).__name__}",
            code="stack-mapping",
        )
    mapping = _mapping_at(array.ctypes.data, Path("/proc/self/maps").read_text())
    if not (mapping.permissions.startswith("rw") and mapping.permissions.endswith("s")):
        raise LaunchError(
            "shared_hbm must lie in writable memory shared between processes (rw-s), but Ray "
            f"returned an array in {mapping.permissions or 'unmapped'} memory {mapping.path}",
            code="stack-mapping",
        )
    return mapping


def _mapping_at(address: int, maps: str) -> _Mapping:
    for line in maps.splitlines():
        span, permissions, *rest = line.split(maxsplit=5)
        start, end = span.split("-")
        if int(start, 16) <= address < int(end, 16):
            return _Mapping(permissions, rest[3] if len(rest) > 3 else "")
    return _Mapping("", "")


def _store_bytes(node: Mapping[str, Any]) -> int:
    """Capacity of a node's object store."""
    return int(node["Resources"].get("object_store_memory", 0))


def _is_local(node: Mapping[str, Any]) -> bool:
    """Whether it is of a Ray that a world started, which listens on the loopback only."""
    return node.get("NodeManagerAddress") in _LOOPBACK


def _whose(node: Mapping[str, Any]) -> str:
    return "this node's" if _is_local(node) else f"{titled(node)}'s"


def _how_to_raise(node: Mapping[str, Any]) -> str:
    return _LOCAL_STORE if _is_local(node) else _CLUSTER_STORE


def _node() -> dict[str, Any]:
    """What Ray lists of this node."""
    if not (found := node_of(here())):
        raise LaunchError(
            f"Ray doesn't list the node {here()} that this process runs on", code="stack-mapping"
        )
    return found


def _session_name() -> str:
    return ray.get_runtime_context().get_session_name()
