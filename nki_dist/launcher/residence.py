"""Keeps the tensors that stay in the HBM of one world's ranks: its capacity, where they lie, what
they hold, and what becomes of them when something is lost.

All of it is called under the world's lock, after the launches before (`row`).
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from nki_dist.compiler.compiled import Compiled
from nki_dist.dtypes import DType
from nki_dist.errors import CoreLostError, LaunchError, NkiError, OutOfMemoryError
from nki_dist.hbm.layout import Given, as_array
from nki_dist.hbm.regions import RESERVE, Block, Regions
from nki_dist.launcher.device_tensor import DeviceTensor, values_by_rank
from nki_dist.ops.alignment import padded
from nki_dist.runtime.executor import Stopped
from nki_dist.runtime.hosts import Host

LISTED: Final = 5  # of the tensors that are there, in a message
Values: TypeAlias = "Sequence[Given]"
"""Of a tensor, by rank: arrays, or what makes them."""


class Residence:
    """See the module's docstring.

    Args:
        world: whose.

    Attributes:
        held: numbers of the regions that the host has.
    """

    def __init__(self, world: Any) -> None:
        self._of = weakref.ref(world)  # which has this
        self.ranks: int = world.ranks
        self.capacity: int = world.arch.hbm_stack_bytes * world.lnc // world.arch.cores_per_stack
        self._tensors: weakref.WeakSet[DeviceTensor] = weakref.WeakSet()
        self._regions = Regions(world.ranks)
        self.held: set[int] = set()
        self._since: tuple[weakref.ref[Host], int] | None = None  # that they are from
        self._suspect: list[Block] = []  # that a launch which was lost may still write
        # What failed since the program was last told of errors: with its error, and whether its
        # memory is as it was.
        self._untold: list[tuple[DeviceTensor, BaseException | None, bool]] = []

    @property
    def _world(self) -> Any:
        world = self._of()
        if world is None:
            raise LaunchError(
                "the world of this tensor is gone; keep the nki.World as long as its tensors",
                code="world-closed",
            )
        return world

    def tensors(self) -> list[DeviceTensor]:
        """Those that are in HBM, the largest first."""
        there = [t for t in self._tensors if t._block is not None]
        return sorted(there, key=lambda t: (-t.nbytes, t.name))

    @property
    def in_use(self) -> bool:
        """Whether somebody has memory."""
        return self._regions.taken > 0

    # ---- the host --------------------------------------------------------------------------------

    def host(self) -> Host:
        """The world's host; what was lost with a former one is known to be."""
        host: Host = self._world._started()
        since = weakref.ref(host), host.era()
        if self._since != since:
            lost = self._since is not None
            self._since = since
            if lost:
                self._lose()
        return host

    def _lose(self) -> None:
        """All memory is gone."""
        self.held.clear()
        self._regions.forget()
        self._suspect.clear()
        for t in self._tensors:
            if t._block is not None:
                t._block = None
                t._error = _lost(t)

    def revive(self, tensor: DeviceTensor, host: Host) -> None:
        """Put it again if it was lost and can be, else raise why it has no value, if so.

        Not before the program knows that a launch has failed: what it asks for until then is meant
        to see what that one was to write.
        """
        untold = any(t is tensor for t, _, _ in self._untold)
        if tensor._error is not None and tensor._restore is not None and not untold:
            values = tensor._restore()
            tensor._check_fits(as_array(values[0]))
            self.fresh(tensor, values, host)
            tensor._error = None
        refuse_failed(tensor)

    # ---- capacity --------------------------------------------------------------------------------

    def place(self, tensor: DeviceTensor, host: Host | None) -> None:
        """Give a tensor memory.

        Args:
            host: None in a dry world.

        Raises:
            OutOfMemoryError: the ranks' HBM is full, or the host has no memory for it.
        """
        self.check_capacity(tensor.nbytes, f"tensor {tensor.name}")
        block = self._regions.take(tensor.nbytes)
        number, _ = block.place
        if host is not None and number not in self.held:
            self._hold(host, number, tensor)
            if empty := self._empty():
                self._drop(host, empty)
        tensor._block = block
        self._tensors.add(tensor)

    def _empty(self) -> list[int]:
        """Regions that nobody has anything in, but for some that stay for later."""
        return [n for n in self._regions.empty(RESERVE // self.ranks) if n in self.held]

    def _hold(self, host: Host, number: int, tensor: DeviceTensor) -> None:
        size = self._regions.sizes[number]
        try:
            try:
                host.hold(number, size)
            except OutOfMemoryError:
                if not (empty := [n for n in self._regions.empty(0) if n in self.held]):
                    raise
                self._drop(host, empty)
                host.hold(number, size)
        except BaseException as error:
            self._regions.forget(number)
            if isinstance(error, OutOfMemoryError):
                error.message = f"tensor {tensor.name}: {error.message}{self._largest()}"
            raise
        self.held.add(number)

    def check_capacity(self, nbytes: int, what: str) -> None:
        """See that so many bytes more fit into the HBM of a rank.

        Raises:
            OutOfMemoryError: they don't.
        """
        used = self._regions.taken
        if used + padded(nbytes) > self.capacity:
            world = self._world
            raise OutOfMemoryError(
                f"{what} needs {nbytes:,} bytes of the HBM of a rank, which has {self.capacity:,} "
                f"on {world.arch.name} with lnc={world.lnc}; {used:,} are taken{self._largest()}",
                code="hbm-full",
                hint="free() what isn't needed any more, use more ranks, or a smaller dtype",
                numbers={"got": used + nbytes, "most": self.capacity},
            )

    def check_launch(
        self, compiled: Compiled, new: Collection[int], copied: Sequence[DeviceTensor] = ()
    ) -> None:
        """See that a launch fits beside the tensors that are there.

        Args:
            new: indices of the arguments that aren't among them.
            copied: tensors that are made besides what the kernel allocates.

        Raises:
            OutOfMemoryError: it doesn't.
        """
        need = [compiled.inputs[n].nbytes for n in new]
        need += [s.nbytes for s in compiled.shared if s.role == "shared"]
        need += [t.nbytes for t in copied]
        need += [p.facts.get("peak_hbm", 0) for p in compiled.programs]
        self.check_capacity(sum(map(padded, need)), f"a launch of {compiled.kernel}")

    def _largest(self) -> str:
        found = [f"{t.name} ({t.nbytes:,} bytes)" for t in self.tensors()]
        more = f" and {len(found) - LISTED:,} more" if len(found) > LISTED else ""
        return f". The largest tensors there: {', '.join(found[:LISTED])}{more}" if found else ""

    def release(self) -> None:
        """Give memory back that nobody has, but for some."""
        if not (empty := self._empty()) or (host := self._world._host) is None:
            return
        if self._since == (weakref.ref(host), host.era()):
            self._drop(host, empty)

    def _drop(self, host: Host, numbers: list[int]) -> None:
        host.drop(numbers)
        self.held -= set(numbers)

    # ---- values ----------------------------------------------------------------------------------

    def fresh(self, tensor: DeviceTensor, values: Values, host: Host) -> None:
        """Give a tensor memory, and values."""
        self.place(tensor, host)
        host.write(_place(tensor), values)

    def put(
        self, shape: tuple[int, ...], dtype: DType, name: str, values: Values | None, restore: Any
    ) -> DeviceTensor:
        """A new tensor.

        Args:
            values: None in a dry world.
            restore: gives the values again, or None.

        Raises:
            OutOfMemoryError: as of `place`; nothing is lost.
        """
        tensor = DeviceTensor(shape, dtype, name, self)
        if values is None:
            self.place(tensor, None)
            return tensor
        self.fresh(tensor, values, self.host())
        tensor._restore = restore
        return tensor

    def adopt(self, tensor: DeviceTensor) -> None:
        """Take a tensor that was made outside of a world, from wherever it is."""
        values, old = tensor._read(), tensor._home
        with self._world._lock:
            moved = self.put(tensor.shape, tensor._dtype, tensor.name, values, None)
        if old is not None:
            old.free(tensor)
        tensor._home, tensor._values, tensor._block = self, None, moved._block
        self._tensors.add(tensor)

    def write(self, tensor: DeviceTensor, values: Values) -> None:
        """Write it anew, in place; elsewhere if a launch that failed may still write there."""
        world = self._world
        world._row.drain()
        with world._lock:
            self.refuse_dry(tensor)
            host = self.host()
            if tensor._block is None:
                self.place(tensor, host)
            tensor._restore = None
            try:
                host.write(_place(tensor), values)
            except BaseException as error:
                self.failed(tensor, error, "write_from_numpy")
                raise
            tensor._error = None

    def read(self, tensor: DeviceTensor) -> list[np.ndarray]:
        """Copies of what it holds."""
        world = self._world
        world.wait()
        with world._lock:
            self.refuse_dry(tensor)
            host = self.host()
            self.revive(tensor, host)
            found = host.read(_place(tensor), tensor.nbytes)
            return [v.view(tensor.dtype).reshape(tensor.shape) for v in found]

    def free(self, tensor: DeviceTensor) -> None:
        """Let go of its memory."""
        if (world := self._of()) is None or world.closed:
            tensor._block = None
            return
        world._row.drain()
        with world._lock:
            tensor._block = None
            self.release()

    def refuse_dry(self, tensor: DeviceTensor) -> None:
        """Raise if there are no values here."""
        self._world._refuse_closed()
        if self._world.dry:
            raise LaunchError(
                f"tensor {tensor.name} has a shape and no values: its world is dry",
                code="tensor-dry",
                hint="leave out World(dry=True) to compute values",
            )

    # ---- launches --------------------------------------------------------------------------------

    def failed(self, tensor: DeviceTensor, error: BaseException, what: str) -> None:
        """What was to write it has failed; what it had may be written in part."""
        if tensor._block is not None:
            self._suspect.append(tensor._block)
            tensor._block = None
        tensor._error = _unwritten(tensor, error, what)

    def spared(self, tensor: DeviceTensor, error: BaseException, what: str) -> None:
        """What was to write it has failed before it began: it has its value, for those who know."""
        tensor._error = tensor._error or _unwritten(tensor, error, what)
        self._untold.append((tensor, tensor._error, True))

    def untold(self, tensor: DeviceTensor) -> None:
        """The program doesn't know yet that it failed."""
        self._untold.append((tensor, tensor._error, False))

    def told(self) -> None:
        """The program knows of all errors."""
        for tensor, error, is_whole in self._untold:
            if is_whole and tensor._error is error:
                tensor._error = None
        self._untold.clear()

    def succeeded(self, written: Sequence[DeviceTensor]) -> None:
        """A launch has written these."""
        for t in written:
            t._restore = t._error = None
        self._suspect.clear()  # whoever was lost has been replaced
        self.release()


def refuse_failed(tensor: DeviceTensor) -> None:
    """Raise why it has no value, if it has none."""
    if tensor._error is not None:
        raise copy.copy(tensor._error).with_traceback(None)


def restorer(
    values: Sequence[Any], restore: Any, ranks: int, name: str
) -> Callable[[], Values] | None:
    """What makes the values of a tensor again: a function of the user, copies, or nothing."""
    if not restore:
        return None
    if callable(restore):
        return lambda: values_by_rank(restore(), ranks, name)
    copies: dict[int, np.ndarray] = {}
    for v in values:
        if id(v) not in copies:
            copies[id(v)] = as_array(v).copy()
    saved: Values = [copies[id(v)] for v in values]
    return lambda: saved


def _place(tensor: DeviceTensor) -> tuple[int, int]:
    assert tensor._block is not None
    return tensor._block.place


def _lost(tensor: DeviceTensor) -> CoreLostError:
    return CoreLostError(
        f"tensor {tensor.name} was lost with the processes or the node that held it",
        code="tensor-lost",
        hint="put it again, or with world.put(..., restore=True), which does that by itself while "
        "no kernel has written it",
    )


def _unwritten(tensor: DeviceTensor, error: BaseException, what: str) -> NkiError:
    """The error of what was to write it, as that of a tensor; of many that depend on each other the
    first."""
    wrapped: NkiError
    error = vars(error).get("first", error)
    if isinstance(error, NkiError):
        wrapped = copy.copy(error)
    elif isinstance(error, Stopped) or not isinstance(error, Exception):
        wrapped = LaunchError("it was interrupted", code="launch-interrupted")
    else:
        said = f"{type(error).__name__}: {error}"
        wrapped = LaunchError(said, code="launch-interrupted")
    wrapped.message = (
        f"tensor {tensor.name} has no value, as {what}, which was to write it, failed: "
        f"{wrapped.message}"
    )
    vars(wrapped)["first"] = error
    return wrapped
