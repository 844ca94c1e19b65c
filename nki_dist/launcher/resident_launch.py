"""One launch on tensors that stay in HBM.

Its DeviceTensors are bound where they lie; what it returns are new ones, in which the kernel stores
directly. Whatever isn't a whole tensor (a view of one, an argument that comes back) is copied after
the launch.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import CoreLostError, NkiError
from nki_dist.hbm.contents import Places
from nki_dist.hbm.regions import Block
from nki_dist.launcher.binding import BoundArguments
from nki_dist.launcher.device_tensor import DeviceTensor
from nki_dist.launcher.findings import check_run
from nki_dist.launcher.residence import Residence
from nki_dist.launcher.results import as_declared, check_written, give_back_inputs
from nki_dist.launcher.retrying import launch_again
from nki_dist.launcher.session import session
from nki_dist.program import Access
from nki_dist.program.pytree import tree_map
from nki_dist.runtime.hosts import Attempt, Host, Launch, LaunchResult


@dataclass(eq=False)
class ResidentLaunch:
    """See the module's docstring. It is carried out when it is called, once, in its turn.

    Attributes:
        world: whose ranks it runs on.
        key: names the compiled kernel.
        bound: every rank's arguments.
        tensors: those of them that stay in HBM, by index.
        line: of the program that launched it.
        alone: whether what it returns reads as one array.
        outputs: what the kernel returns, with DeviceTensors.
        result: what is left of it, once it has ended.
        sessions: it belongs to.
    """

    world: Any
    key: str
    compiled: Compiled
    bound: Sequence[BoundArguments]
    tensors: Mapping[int, DeviceTensor]
    line: str | None = None
    alone: bool = False
    outputs: Any = None
    result: LaunchResult | None = None
    _begun: bool = False
    _stored: dict[tuple[str, int], list[DeviceTensor]] = field(default_factory=dict)
    _copied: list[tuple[DeviceTensor, Access]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sessions: list[Any] = self.world.sessions
        self.outputs = tree_map(self._output, self.compiled.outputs)

    @property
    def where(self) -> str:
        """What was launched, and which line of the program did."""
        return f"{self.compiled.kernel} at {self.line}"

    @property
    def written(self) -> list[DeviceTensor]:
        """Arguments that the kernel writes where they are."""
        return [self.tensors[n] for n in self.compiled.written_inputs if n in self.tensors]

    # ---- what it returns -------------------------------------------------------------------------

    def _output(self, leaf: Any) -> Any:
        if not isinstance(leaf, Access):
            return leaf
        s = leaf.storage
        whole = _is_whole(leaf)
        if whole and s.role == "input" and s.index in self.tensors:
            same = self.tensors[s.index]
            if (leaf.shape, leaf.dtype) == (same.shape, same.nki_dtype):
                return same
        stored = whole and s.role == "shared"
        of = self._stored.get(s.key, []) if stored else []
        for tensor in of:
            if (tensor.shape, tensor.nki_dtype) == (leaf.shape, leaf.dtype):
                return tensor
        name = f"{self.compiled.kernel}.{s.title}"
        tensor = DeviceTensor(leaf.shape, leaf.dtype, name, self.world.residence, self.alone)
        if stored:
            self._stored.setdefault(s.key, []).append(tensor)
        else:
            self._copied.append((tensor, leaf))
        return tensor

    def _new(self) -> list[DeviceTensor]:
        copied = [tensor for tensor, _ in self._copied]
        return [*copied, *(t for several in self._stored.values() for t in several)]

    def lies_in(self, key: tuple[str, int]) -> DeviceTensor | None:
        """The tensor in whose place a storage is, if it is in one's."""
        role, index = key
        if role == "input":
            return self.tensors.get(index)
        return next(iter(self._stored.get(key, ())), None)

    def place_dry(self) -> None:
        """Account for what it returns, in a world without values."""
        residence: Residence = self.world.residence
        self._check_capacity(residence)
        for tensor in self._new():
            residence.place(tensor, None)

    # ---- carrying it out -------------------------------------------------------------------------

    def __call__(self) -> None:
        """Carry it out.

        Raises:
            NkiError: as any launch; or an argument has no value, with the error why.
        """
        world = self.world
        with world._lock:
            try:
                world._refuse_closed()
                result = self._launch()
                check_run(world, self.compiled, result)
                self._copy(result)
                self._give_back(result)
            except BaseException as error:
                self.fail(error)
                raise
            self._succeed(result)

    def fail(self, error: BaseException) -> None:
        """What it was to write has no value."""
        residence, what = self.world.residence, f"the launch of {self.compiled.kernel}"
        for tensor in self._new():
            residence.failed(tensor, error, what)
        for tensor in self.written:
            if self._begun or tensor._block is None:
                residence.failed(tensor, error, what)
                residence.untold(tensor)
            else:
                residence.spared(tensor, error, what)

    @staticmethod
    def together(launches: Sequence[ResidentLaunch]) -> int:
        """Carry out the first of these in one go; how many could be, without an error."""
        world = launches[0].world
        with world._lock:
            if world.closed or world.timeout is not None:
                return 0
            ready: list[Launch] = []
            residence: Residence = world.residence
            host = residence.host()
            for launch in launches:
                if not launch._goes_together():
                    break
                try:
                    where = launch._places(residence, host)
                except NkiError:  # it is told when it is carried out alone
                    break
                ready.append(replace(launch._prepared(), places=where))
            try:
                results = host.launch_row(ready) if len(ready) > 1 else []
            except CoreLostError:  # what was lost is replaced for the first of them
                return 0
            done = itertools.takewhile(
                lambda pair: pair[0]._is_done(pair[1]), zip(launches, results)
            )
            return sum(1 for _ in done)

    def _goes_together(self) -> bool:
        """Whether it only meets, and writes nothing but new tensors."""
        c = self.compiled
        travels = len(self.tensors) < len(c.inputs)
        return not (travels or self._copied or c.written_inputs or c.sends)

    def _is_done(self, result: LaunchResult) -> bool:
        """Take what is left of it; False if checks find something, which it is told alone."""
        try:
            check_run(self.world, self.compiled, result)
        except NkiError:
            return False
        self._succeed(result)
        return True

    def _succeed(self, result: LaunchResult) -> None:
        self.result = result
        self.world.residence.succeeded([*self.written, *self._new()])
        self.world.note(self.sessions, self.compiled, result)

    def _prepared(self) -> Launch:
        world = self.world
        return Launch(
            self.key, self.compiled, self._inputs(), world.printer, world.timeout, session().warn
        )

    def _places(self, residence: Residence, host: Host) -> Places:
        """Where its tensors lie; new ones get memory."""
        for tensor in self.tensors.values():
            residence.revive(tensor, host)
        self._check_capacity(residence)
        places = {("input", n): _block(t).place for n, t in self.tensors.items()}
        for key, several in self._stored.items():
            places[key] = self._place(several, residence, host).place
        return tuple(sorted(places.items()))

    def _launch(self) -> LaunchResult:
        world, launch = self.world, self._prepared()

        def begin() -> Attempt:
            residence: Residence = world.residence
            host = residence.host()
            where = self._places(residence, host)

            def attempt(launch: Launch) -> LaunchResult:
                self._begun = True
                try:
                    return host.launch(replace(launch, places=where))
                except NkiError as error:
                    for tensor in (*self.written, *self._new()):
                        residence.failed(tensor, error, f"the launch of {self.compiled.kernel}")
                    raise

            return attempt

        return launch_again(begin, launch, world.retries) if world.retries else begin()(launch)

    def _inputs(self) -> list[list[Any]]:
        cache: dict[int, list[Any]] = {}
        for b in self.bound:
            if id(b) not in cache:
                cache[id(b)] = [None if n in self.tensors else a for n, a in enumerate(b.arrays)]
        return [cache[id(b)] for b in self.bound]

    def _check_capacity(self, residence: Residence) -> None:
        """See that what the launch needs besides tensors that are there fits, too."""
        if all(t._block is None for t in self._new()):  # else it is made again
            others = [n for n in range(len(self.compiled.inputs)) if n not in self.tensors]
            residence.check_launch(self.compiled, others, [t for t, _ in self._copied])

    def _place(self, several: list[DeviceTensor], residence: Residence, host: Host) -> Block:
        """Memory of a returned tensor, which several have if it is returned in several shapes."""
        first = several[0]
        if first._block is None:
            residence.place(first, host)
        for other in several[1:]:
            other._block = first._block
        return _block(first)

    def _copy(self, result: LaunchResult) -> None:
        """Outputs that aren't whole tensors."""
        if not self._copied:
            return
        residence: Residence = self.world.residence
        host, memories = residence.host(), _Memories(self, result)
        for tensor, leaf in self._copied:
            residence.fresh(tensor, memories.selected(leaf, host), host)

    def _give_back(self, result: LaunchResult) -> None:
        """Arrays that the kernel has written, to the caller."""
        compiled, layout, ranks = self.compiled.as_run, result.layout, self.world.ranks
        if len(self.written) == len(compiled.written_inputs):
            return
        if ranks > 1:
            check_written([compiled] * ranks, [layout] * ranks, result.memories, self.bound)
        for b, memory in zip(self.bound, result.memories):
            give_back_inputs(compiled, layout, memory, b)


class _Memories:
    """What storages hold after a launch, wherever they are."""

    def __init__(self, launch: ResidentLaunch, result: LaunchResult) -> None:
        self._launch, self._result = launch, result
        self._read: dict[tuple[str, int], list[np.ndarray]] = {}

    def selected(self, leaf: Access, host: Host) -> list[np.ndarray]:
        """Of each rank, a copy of what an access pattern selects."""
        s, ranks = leaf.storage, self._launch.world.ranks
        if s.role == "constant":
            return [as_declared(np.frombuffer(s.data or b"", np.uint8), leaf)] * ranks
        tensor = self._launch.lies_in(s.key)
        if tensor is None:
            at = self._result.layout.offsets[s.key]
            return [as_declared(m[at : at + s.nbytes], leaf) for m in self._result.memories]
        if s.key not in self._read:
            self._read[s.key] = host.read(_block(tensor).place, s.nbytes)
        return [as_declared(m, leaf) for m in self._read[s.key]]


def _is_whole(a: Access) -> bool:
    """Whether it is all of a storage, in order."""
    step, contiguous = 1, True
    for n, stride in zip(reversed(a.shape), reversed(a.strides)):
        contiguous &= n == 1 or stride == step
        step *= n
    return a.offset == 0 and contiguous and step * a.dtype.itemsize == a.storage.nbytes


def _block(tensor: DeviceTensor) -> Block:
    assert tensor._block is not None
    return tensor._block
