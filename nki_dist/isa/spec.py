"""`@instruction`: one object per instruction, from which everything else is derived.

An instruction file declares the public function, and functions attached with decorators. The
signature says of each parameter its role, in the place of its default (`data=read()`), and with a
role the default that it has (`negate=FLAG.default(False)`); parameters without a role (`name`) are
no operands. The body returns `locals()`.

    check(i, arch)     what several operands must fulfil besides the rules that it declares with
                       `checks=`; of their places see isa.patterns
    meaning(i, kit)    semantics: returns the operations that do the work
    rows(i)            of DMA instructions whose whole transfer moves with a scalar run-time index:
                       its Blocks (isa.transfers), of which `oob_mode.skip` drops rows
    exchange(i, kit)   instead of `meaning` for instructions that wait for other cores: returns a
                       generator function that yields what it waits for
    factors(i, arch)   of matmuls: the Factors of the product that is its meaning, or None
    cost(i, arch)      a Cost: cycles of its engine, or bytes moved by DMA; of operands it may ask
                       shapes, strides, dtypes and memories, not which tensor or where in it

What passes and simulated time must know besides is in its `effects` (isa.effects) and in the facts
of its engine. The public function, operand checks, codec, disassembly, footprints, executor, timing
and coverage page read these declarations. Nothing here knows about threads, clocks or Ray. What
every instruction is written with (Arch, Instruction, Kit, Operation, op) is imported from here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Final, TypeVar

from nki_dist.arch import Arch
from nki_dist.errors import NkiError, NkiValidationError, invalid
from nki_dist.isa import indirection
from nki_dist.isa.checks import LONGEST_ROW, Check, check_repeats, require_generation
from nki_dist.isa.effects import Effects, Meets
from nki_dist.isa.enums import oob_mode
from nki_dist.isa.kit import Kit  # noqa: F401 -- this, too
from nki_dist.isa.operands import HBM, Choice, Counts, Op, Tensor, roles_of
from nki_dist.isa.patterns import NOTHING
from nki_dist.isa.reach import check_start
from nki_dist.isa.tensor_engine import ArrayTile, Factors
from nki_dist.isa.tracing import (  # noqa: F401 -- instructions import them from here
    current_tracer,
    may_reject,
    release_in_force,
    released,
    todays_kernel,
    tracing,
    tracing_with,
)
from nki_dist.isa.transfers import Block
from nki_dist.ops.operation import Operation, op  # noqa: F401 -- and this
from nki_dist.program import Access, Instruction
from nki_dist.program.walk import tensors

__tracebackhide__ = True  # asks pytest to end tracebacks in the caller

F = TypeVar("F", bound=Callable[..., Any])

DOCS = "nki/api/generated/"
_COMPUTE: Final = frozenset({"tensor", "vector", "scalar", "gpsimd"})
_MODULES: Final = MappingProxyType({"nisa": "isa", "ncc": "collectives"})
WRITES_TO_DST: Final = (
    "instructions write to dst and return no tile; allocate it before with nl.ndarray"
)
_OF_ENGINE: Final = (("scalar", "table"), ("tensor", "accumulates"), ("tensor", "chains"))


@dataclass(frozen=True)
class Cost:
    """Work of one instruction, for the timing model.

    Attributes:
        cycles: cycles of its engine that it occupies (issue to issue).
        dma_bytes: bytes moved by DMA; 0 for compute engines.
        dma_elements: contiguous pieces a DMA has to describe.
        flops: floating-point operations, for utilisation.
        known: False where the documentation gives no formula and we assume one.
        figures: fields of the architecture that it rests on besides those of its engine.
        tile: what it takes of the Tensor engine's array, if not all of it.
    """

    cycles: float = 0.0
    dma_bytes: int = 0
    dma_elements: int = 1
    flops: int = 0
    known: bool = True
    figures: tuple[str, ...] = ()
    tile: ArrayTile | None = None


def _attaching(attribute: str) -> Callable[[Any, F], F]:
    """A decorator of an instruction that keeps the function as this attribute."""

    def attach(spec: Any, function: F) -> F:
        setattr(spec, attribute, function)
        return function

    return attach


@dataclass(eq=False, repr=False)
class Spec:
    """An instruction: callable as the public API function, and a table of what is known of it.

    Args:
        engines: names of the engines it can run on, the default first.
        effects: what passes and simulated time must know of it.
        checks: rules of isa.checks, in the order in which they are asked, before those attached.
        table: the parameter with the function whose table the Scalar engine has to load, or "" if
            it needs none. Must be given for the Scalar engine's instructions, and only there.
        accumulates: it adds to what an earlier such instruction left in PSUM, unless it is told to
            replace it. Must be given for the Tensor engine's, as is `chains`.
        chains: instructions of the Tensor engine that depend on it needn't wait for its result.
        fills: the parameter with the number that every element of its destination becomes, or "".
        meets: how it meets other cores, if it waits for them (has `exchange`, no `meaning`).
        default_engine: which one when the kernel doesn't say, if it depends on the operands.
        min_generation: first NeuronCore generation that has it.
        exactness: "exact", or "approximate: how far".
        documented: page of the documentation; `nki.isa.<name>` by default.
        former: parameters that older NKI releases had and published kernels still pass; they are
            dropped, because `dst` says the same.
        namespace: how messages call the module it is public in.

    Raises:
        TypeError: a declaration is missing or names no parameter; the file can't be imported.
    """

    function: Callable[..., dict[str, Any]]
    _: KW_ONLY
    engines: tuple[str, ...]
    effects: Effects
    checks: Sequence[Check] = ()
    table: str | None = None
    accumulates: bool | None = None
    chains: bool | None = None
    fills: str = ""
    meets: Meets | None = None
    default_engine: Callable[[Instruction, Arch], str] | str = ""
    min_generation: int = 2
    exactness: str = "exact"
    documented: str = ""
    former: Sequence[str] = ()
    namespace: str = "nisa"

    def __post_init__(self) -> None:
        self.roles = roles = roles_of(self.function)
        self.name: str = self.function.__name__
        self.title = f"{self.namespace}.{self.name}"
        self.__name__ = self.name
        self.__doc__ = self.function.__doc__
        self.__module__ = "nki_dist.isa"
        self.__wrapped__ = self.function
        self.signature = inspect.signature(self.function)
        self.default_engine = self.default_engine or self.engines[0]
        self.synchronises = self.meets is not None
        self.documented = self.documented or f"{DOCS}nki.{_MODULES[self.namespace]}.{self.name}"
        self.has_engine = "engine" in self.signature.parameters and "engine" not in roles
        self._parameters()
        self._checks: list[Check] = [*self.checks]
        # What its file attaches. `lower` gives the operations that execute an instruction, on what
        # a kit gives for its operands; `blocks` what rows of it may be moved without the others,
        # none if it runs whole or not at all.
        self.lower: Callable[[Instruction, Any], list[Operation]]
        self.link_exchange: Callable[[Instruction, Any], Callable[[], Any]]
        self.cost_of: Callable[[Instruction, Arch], Cost]
        self.blocks: Callable[[Instruction], list[Block]] = lambda i: []
        self.factors_of: Callable[[Instruction, Arch], Factors | None] | None = None
        self._check_declaration()

    def _parameters(self) -> None:
        """Names of its parameters by what they are, asked for every instruction of a program."""
        self._role_items = tuple(self.roles.items())
        tensors = {n: role for n, role in self._role_items if isinstance(role, Tensor)}

        def those(is_such: Callable[[Tensor], Any]) -> tuple[str, ...]:
            return tuple(name for name, role in tensors.items() if is_such(role))

        self.tensors = tuple(tensors)
        self.read = those(lambda role: "r" in role.mode)
        self.written = those(lambda role: "w" in role.mode)
        self.in_psum = those(lambda role: "w" in role.mode and "psum" in role.memories)
        self.in_hbm = those(lambda role: role.memories & HBM)
        self.indirect = those(lambda role: role.indirect)
        compute = _COMPUTE.issuperset(self.engines)
        self._quadrants = those(lambda role: compute and not role.any_start)
        # Which says how much goes where, "" if none does.
        self.counts = next(iter(those(lambda role: isinstance(role, Counts))), "")
        # Operators and members of enums, which one object stands for; what isn't a tensor, either.
        named = tuple(n for n, role in self._role_items if isinstance(role, (Choice, Op)))
        self.named = (*named, "engine") if self.has_engine else named
        self.valued = tuple(n for n in self.roles if n not in tensors and n not in named)
        self.attributes = (*self.named, *self.valued)

    def _check_declaration(self) -> None:
        named = self.effects.parameters() | ({self.table, self.fills} - {"", None})
        unknown = named - {*self.roles}
        if unknown:
            raise TypeError(f"{self.name} declares parameters it doesn't have: {unknown}")
        for engine, fact in _OF_ENGINE:
            if (getattr(self, fact) is not None) != (engine in self.engines):
                message = f"{self.name}: `{fact}` is for the {engine} engine, and needed there"
                raise TypeError(message)

    # ---- attached by the instruction's file ---------------------------------------------------

    def check(self, function: Check) -> Any:
        self._checks.append(function)
        return function

    meaning = _attaching("lower")
    exchange = _attaching("link_exchange")
    cost = _attaching("cost_of")
    rows = _attaching("blocks")
    factors = _attaching("factors_of")

    # ---- used by compiler, executor, timing ---------------------------------------------------

    def orders(self, i: Instruction, core: int) -> bool:
        """Whether `core` meets the other core of its rank in the instruction; see isa.effects."""
        return self.meets is not None and self.meets.orders(i, core)

    def waits(self, i: Instruction, core: int) -> bool:
        """Whether `core` surely waits there for the other core of its rank."""
        return self.meets is not None and self.meets.waits(i, core)

    def verify(self, i: Instruction, arch: Arch) -> None:
        """Run every constraint check on an instruction whose operands have been accepted."""
        require_generation(arch, self.min_generation, self.title)
        args = i.args
        for name in self.tensors:
            a = args[name]
            if isinstance(a, Access):
                if prod(a.shape) > LONGEST_ROW:
                    check_repeats(i.args)
            elif isinstance(a, list):
                check_repeats(i.args)
        for name in self._quadrants:
            a = args[name]
            if not isinstance(a, Access):
                continue
            # From partition 0 everything is reached; this is asked of every operand.
            if (a.offset or a.storage.address) and a.storage.region.on_chip:
                check_start(name, a, arch)
        for name in self.indirect:
            if args[name].dynamic is not None:
                indirection.check(i, self.indirect, arch)
                break
        for check in self._checks:
            check(i, arch)

    def writes(self, i: Instruction) -> list[Access]:
        found: list[Access] = []
        for name in self.written:
            value = i.args[name]
            if isinstance(value, Access):
                found.append(value)
            elif value is not None:
                found += tensors(value)
        return found

    def reads(self, i: Instruction) -> list[Access]:
        """Tensors read, the sources of run-time indices included."""
        found: list[Access] = []
        for name in self.tensors:
            value = i.args[name]
            if value is None:
                continue
            for a in (value,) if isinstance(value, Access) else tensors(value):
                if name in self.read:
                    found.append(a)
                if a.dynamic is not None and isinstance(a.dynamic.source, Access):
                    found.append(a.dynamic.source)
        return found

    def may_skip(self, i: Instruction) -> bool:
        """Whether an index outside its tensor leaves part of the destination as it was."""
        if i.kind is not None or i.args.get("oob_mode") is not oob_mode.skip:
            return False  # of a kind all addresses are known
        touched = (a for name in self.tensors for a in tensors(i.args[name]))
        return any(a.dynamic is not None for a in touched)

    # ---- the public API function --------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracer = current_tracer()
        for name in self.former:
            kwargs.pop(name, None)
        try:
            a = self.function(*args, **kwargs)
        except TypeError as error:
            traceback = error.__traceback__
            if traceback is None or traceback.tb_next is not None:
                raise
            raise NkiValidationError(
                f"{error}; its parameters are {self.signature}",
                instruction=self.title,
                hint=WRITES_TO_DST if "'dst'" in str(error) else None,
                code="call-signature",
            ) from None
        try:
            label = a.pop("name", None)
            patterns, (known, operands, key) = tracer.patterns, NOTHING
            if patterns is not None:
                where = tracer.locate()
                known, operands, key = patterns.find(where, self, a, tracer.beta1)
            if known is not None:
                if self.has_engine:
                    del a["engine"]
                known.accept(a)
                handle = tracer.record(self.name, a, known, operands, where)
            else:
                given, doubts = None if key is None else a.copy(), tracer.doubts
                for name, role in self._role_items:
                    a[name] = role.accept(name, a[name])
                handle = tracer.emit(self, a, self._pick_engine(a))
                if given is not None and tracer.doubts == doubts:
                    patterns.learn(key, self, given, handle.instruction, operands)
            if label is not None:
                tracer.label(label, handle)
            return handle
        except NkiError as error:
            error.at(location=tracer.where(), core=tracer.core, instruction=self.title)
            if (dropped := tracer.drop(error)) is not None:
                return dropped
            raise error from error.__cause__

    def _pick_engine(self, a: dict[str, Any]) -> str:
        if not self.has_engine:
            return ""
        engine = a.pop("engine")
        label = getattr(engine, "name", engine)
        if label == "unknown" or engine is None:
            return ""
        if label not in self.engines:
            message = f"engine={label}; allowed: {', '.join(self.engines)} or unknown"
            raise invalid(message, code="engine-choice")
        return label

    def choose_engine(self, i: Instruction, arch: Arch) -> str:
        """The engine when the kernel leaves the choice to the compiler."""
        default = self.default_engine
        return default if isinstance(default, str) else default(i, arch)

    def __repr__(self) -> str:
        return f"<{self.title}>"


def instruction(
    *, engines: str, cost: Callable[[Instruction, Arch], Cost] | None = None, **declared: Any
) -> Callable[[Callable[..., dict[str, Any]]], Spec]:
    """Declare an instruction; `Spec` says what has to be and what may be declared.

    Args:
        engines: separated by spaces.
        cost: a rule of isa.timing_rules, where one says it all.
    """

    def declare(function: Callable[..., dict[str, Any]]) -> Spec:
        spec = Spec(function, engines=tuple(engines.split()), **declared)
        if cost is not None:
            spec.cost_of = cost
        return spec

    return declare
