"""What an instruction call returns: a handle for scheduling dependencies."""

from __future__ import annotations

from typing import Any

from nki_dist.errors import NoSuchAttribute, invalid
from nki_dist.isa.enums import dependency
from nki_dist.isa.tracing import released
from nki_dist.program import Instruction


class NkiInstruction:
    """Handle of a recorded instruction.

    `depends_on` adds an edge of the order graph; it becomes a semaphore wait that is executed every
    time the instruction runs, so a producer must be in the same dynamic loop or an enclosing one.
    """

    __slots__ = ("depth", "instruction")

    def __init__(self, handle: Instruction, depth: int = 0) -> None:
        self.instruction = handle
        self.depth = depth

    def __getattr__(self, name: str) -> Any:
        if name in NkiInstruction.__slots__:  # not yet set
            raise AttributeError(name)
        raise NoSuchAttribute(
            f"{self!r} has no .{name}: an instruction writes to its dst and returns no tile; use "
            "the tensor that was passed as dst",
            code="instruction-result",
        )

    def __repr__(self) -> str:
        return f"<instruction {self.instruction.opcode}>"

    def depends_on(
        self, *producers: NkiInstruction, kind: dependency | None = None
    ) -> NkiInstruction:
        """This instruction runs after each producer; returns self.

        Args:
            kind: from NKI 0.7 on. `dependency.runtime` waits for the producer's end, on whatever
                engine. `dependency.schedule` orders what one engine issues; on different engines
                the two may overlap. Left out, it is as runtime.

        Raises:
            NkiValidationError: a producer is no instruction, comes later, or sits inside a dynamic
                loop that this instruction is outside of; there is no such kind.
            CompileError: a kind in a kernel that is checked against NKI 0.6.
        """
        released("depends_on without kind" if kind is None else "depends_on(kind=)")
        if kind is not None and not isinstance(kind, dependency):
            message = f"depends_on(kind={kind!r}); allowed: nisa.dependency.runtime, .schedule"
            raise invalid(message, code="depends-on")
        for producer in producers:
            if not isinstance(producer, NkiInstruction):
                raise invalid(f"depends_on takes instructions, got {producer!r}", code="depends-on")
            if producer.instruction.ordinal >= self.instruction.ordinal:
                message = "depends_on: the producer comes later in program order"
                raise invalid(message, code="depends-on")
            if producer.depth > self.depth:
                raise invalid(
                    "depends_on: the producer is inside a dynamic loop that the consumer is not in",
                    code="depends-on",
                )
            same_engine = producer.instruction.engine == self.instruction.engine
            if kind is not dependency.schedule or same_engine:
                self.instruction.after += (producer.instruction.ordinal,)
        return self


class Dropped(NkiInstruction):
    """Stands for an instruction that was refused, where a kernel is traced past its mistakes."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Instruction("dropped", {}, "", -1, -1))

    def depends_on(self, *_: NkiInstruction, kind: dependency | None = None) -> NkiInstruction:
        """Nothing: what isn't there has no place in an order."""
        return self
