"""What the kernel's source calls a tensor, so that messages can call it the same.

`out = nl.ndarray(...)` names its tensor `out`. The name isn't known when the call allocates, but
the instructions that store its result follow the call in the bytecode of the frame that made it;
source files aren't needed. They are followed with a picture of the stack, which is enough for
tuples, `self.acc = ...`, `tiles[i] = ...` and `a = b = ...`. An instruction that isn't known here
ends the search, and the tensor keeps its number.

A frame that returns the value hands the search on to its caller. In a frame of this package
(nl.load allocates its result itself) so does one that returns the local it stores to; other locals
there are temporaries without a name. In the user's code the first name counts: `made` in a helper
that says `made = nl.ndarray(...)`, the caller's in one that says `return nl.ndarray(...)`.

Names depend on bytecode alone, so equal kernels give equal names. Each place is looked at once.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

DEEPEST: Final = 64  # frames between an allocation and the statement that names it
LONGEST: Final = 60  # longer names would hide the message

_LOADS: Final = ("LOAD_CONST", "LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")
_STORES: Final = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")
_ENDS: Final = (*_STORES, "STORE_ATTR", "STORE_SUBSCR", "LIST_APPEND", "RETURN_VALUE")
_ROTATIONS: Final = {"ROT_TWO": 2, "ROT_THREE": 3, "ROT_FOUR": 4}  # of Python 3.10
_NO_EFFECT: Final = ("CACHE", "EXTENDED_ARG", "KW_NAMES", "NOP", "POP_BLOCK", "PRECALL", "RESUME")
_LOOPS: Final = ("JUMP_BACKWARD", "END_FOR")  # around a comprehension's list
# Of Python 3.13: two instructions in one, whose arguments are the halves of its own.
_PAIRS: Final = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
# They take what `dis` says and leave one value.
_MAKERS: Final = ("BINARY_", "BUILD_", "CALL", "COMPARE_OP", "UNARY_")


class Ours(NamedTuple):
    """Our value: itself, or inside tuples and lists, at `places`, outermost first."""

    places: tuple[int | str, ...] = ()


class Fate(NamedTuple):
    """What becomes of a call's value: it is stored under a name, or returned, or neither."""

    name: str = ""
    returned: Ours | None = None


class Names:
    """Names for values by the place of the call that makes them.

    Args:
        is_machinery: whether code belongs to this package rather than to the user.
    """

    def __init__(self, is_machinery: Callable[[CodeType], bool]) -> None:
        self._is_machinery = is_machinery
        # By identity, because a code's hash covers all of it; `_codes` keeps identities unique.
        self._cache: dict[tuple[Any, ...], Fate] = {}
        self._codes: dict[int, CodeType] = {}

    def of(self, frame: FrameType | None) -> str:
        """The name of what the call under way in `frame` returns, "" if it has none."""
        ours = Ours()
        for _ in range(DEEPEST):
            if frame is None:
                break
            code = frame.f_code
            # Most values aren't inside others; keys of different lengths never equal each other.
            key = (id(code), frame.f_lasti, ours) if ours.places else (id(code), frame.f_lasti)
            fate = self._cache.get(key)
            if fate is None:
                self._codes[id(code)] = code
                fate = self._cache[key] = fate_of(
                    code, frame.f_lasti, ours, self._is_machinery(code)
                )
            if fate.returned is None:
                return fate.name
            ours, frame = fate.returned, frame.f_back
        return ""


@lru_cache(maxsize=4096)
def fate_of(code: CodeType, at: int, ours: Ours, machinery: bool) -> Fate:
    """What becomes of the value of the call at a byte offset."""
    fate = _Follower(code, ours, machinery).follow(at)
    if fate.name and machinery:
        return Fate(returned=ours if _returns(code, at, fate.name) else None)
    return fate


def _following(code: CodeType, at: int, jump: bool = True) -> Iterator[tuple[str, int, int, int]]:
    """(name, opcode, argument, offset) of the instructions after the one at a byte offset.

    Args:
        jump: whether jumps forward that are always taken are, so that only what runs is given.
    """
    raw, high, offset = code.co_code, 0, at + 2
    while offset < len(raw):
        op, argument = raw[offset], raw[offset + 1] | high
        offset += 2
        name = dis.opname[op]
        high = argument << 8 if name == "EXTENDED_ARG" else 0
        if name == "JUMP_FORWARD" and jump:
            offset += 2 * argument
        elif name in _PAIRS:
            for half, slot in zip(_PAIRS[name], divmod(argument, 16), strict=True):
                yield half, dis.opmap[half], slot, offset - 2
        elif name not in _NO_EFFECT:
            yield name, op, argument, offset - 2


def _returns(code: CodeType, at: int, local: str) -> bool:
    """Whether `return local` or `return f(local, ...)` follows."""
    return any(
        name == "LOAD_FAST"
        and _slots(code)[argument] == local
        and _Follower(code, Ours(), True).follow(offset).returned is not None
        for name, _, argument, offset in _following(code, at, jump=False)
    )


def _effect(op: int, argument: int) -> int:
    """By how much an instruction makes the stack longer."""
    return dis.stack_effect(op, argument if op >= dis.HAVE_ARGUMENT else None)


def _slots(code: CodeType) -> tuple[str, ...]:
    """Names of a frame's slots; from Python 3.11 on those of cells and free variables follow."""
    if sys.version_info < (3, 11):
        return code.co_varnames
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return (*code.co_varnames, *cells, *code.co_freevars)


def _variable(code: CodeType, name: str, argument: int) -> str:
    """The variable that an instruction loads or stores."""
    if "_FAST" in name:
        return _slots(code)[argument]
    if "DEREF" in name:
        old = sys.version_info < (3, 11)
        return (code.co_cellvars + code.co_freevars if old else _slots(code))[argument]
    if name == "LOAD_GLOBAL" and sys.version_info >= (3, 11):
        argument >>= 1  # the lowest bit says whether NULL is pushed, too
    return code.co_names[argument]


class _Follower:
    """Follows a value through the code after the call that makes it.

    In this package what a call makes of the value counts as the value: tiles are wrapped and
    converted on their way to the user.

    Everything else on the stack is the text of its expression, "..." where that would be long.
    """

    def __init__(self, code: CodeType, ours: Ours, machinery: bool) -> None:
        self.code = code
        self.machinery = machinery
        self.stack: list[Any] = [ours]

    def follow(self, at: int) -> Fate:
        try:
            for name, op, argument, _ in _following(self.code, at):
                if (
                    name in ("LIST_APPEND", "RETURN_VALUE", "STORE_ATTR", "STORE_SUBSCR")
                    or name in _STORES
                ):
                    fate = self._end(name, argument)
                    if fate is not None:
                        return fate
                elif not self._goes_on(name, op, argument):
                    break
        except (IndexError, ValueError):  # a value from before the call is taken
            pass
        return Fate()

    def _end(self, name: str, argument: int) -> Fate | None:
        """The fate of ours if this instruction takes it."""
        stack = self.stack
        if name == "RETURN_VALUE":
            return Fate(returned=stack[-1] if isinstance(stack[-1], Ours) else None)
        if name == "LIST_APPEND":
            return self._append(argument)
        if name == "STORE_ATTR":
            target = f"{stack.pop()}.{self.code.co_names[argument]}"
        elif name == "STORE_SUBSCR":
            key = stack.pop()
            target = f"{stack.pop()}[{key}]"
        else:
            target = _variable(self.code, name, argument)
        value = stack.pop()
        if not isinstance(value, Ours):
            return None
        text = target + "".join(f"[{place}]" for place in value.places)
        return Fate(text if len(text) <= LONGEST and not text.startswith("...") else "")

    def _append(self, depth: int) -> Fate | None:
        """A comprehension's list takes the value on top; what becomes of ours is that of the list.

        Up to Python 3.11 a comprehension is a function. Later ones have it in the function that
        contains it: the jump back ends its code, and what follows is the end of its loop.
        """
        value = self.stack[-1]
        if self.code.co_name == "<listcomp>":
            whole = Ours(("...", *value.places)) if isinstance(value, Ours) else None
            return Fate(returned=whole)
        self.stack.pop()
        self._reach(depth)
        if isinstance(value, Ours):
            self.stack[-depth] = Ours(("...", *value.places))
        return None

    def _goes_on(self, name: str, op: int, argument: int) -> bool:
        """Carry an instruction out on the picture; False if ours is gone or can't be followed."""
        stack = self.stack
        if name in _LOADS:
            stack += [self._text(name, argument)] * _effect(op, argument)
        elif name == "POP_TOP" or (name == "END_FOR" and sys.version_info < (3, 13)):
            self._reach(1)
            stack.pop()  # of END_FOR, the iterator: in this picture nothing lies on it at the end
        elif name == "PUSH_NULL":
            stack.append("")
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            self._attribute(name, op, argument)
        elif name in ("COPY", "DUP_TOP"):
            stack.append(stack[-(argument or 1)])
        elif name == "SWAP":
            self._reach(argument)
            stack[-1], stack[-argument] = stack[-argument], stack[-1]
        elif name == "ROT_N" or name in _ROTATIONS:
            count = _ROTATIONS.get(name, argument)
            self._reach(count)
            stack.insert(len(stack) - count, stack.pop())
        elif name == "UNPACK_SEQUENCE":
            self._unpack(argument)
        elif name in _LOOPS:
            pass
        elif name.startswith(_MAKERS):
            self._make(name, op, argument)
        else:
            return False
        return any(isinstance(value, Ours) for value in stack)

    def _text(self, name: str, argument: int) -> str:
        if name != "LOAD_CONST":
            return _variable(self.code, name, argument)
        value = self.code.co_consts[argument]
        return repr(value) if isinstance(value, (int, str)) else "..."

    def _attribute(self, name: str, op: int, argument: int) -> None:
        if name == "LOAD_ATTR" and sys.version_info >= (3, 12):
            text = f"{self.stack.pop()}.{self.code.co_names[argument >> 1]}"
        else:
            text = f"{self.stack.pop()}.{self.code.co_names[argument]}"
        self.stack += [text] * (1 + _effect(op, argument))

    def _reach(self, count: int) -> None:
        """Show as much of the stack as was there before the call."""
        self.stack[:0] = ["..."] * (count - len(self.stack))

    def _unpack(self, count: int) -> None:
        value = self.stack.pop()
        parts: list[Any] = ["..."] * count
        if isinstance(value, Ours) and value.places and isinstance(value.places[0], int):
            parts[value.places[0]] = Ours(value.places[1:])
        self.stack += reversed(parts)

    def _make(self, name: str, op: int, argument: int) -> None:
        stack = self.stack
        # What CALL takes with its arguments, Python 3.11 shares out between it and PRECALL.
        count = argument + 2 if name == "CALL" else 1 - _effect(op, argument)
        self._reach(count)
        parts = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        ours = [place for place, part in enumerate(parts) if isinstance(part, Ours)]
        if ours and name in ("BUILD_TUPLE", "BUILD_LIST"):
            stack.append(Ours((ours[0], *parts[ours[0]].places)))
        elif ours and self.machinery and name.startswith("CALL"):
            stack.append(parts[ours[0]])
        elif ours:
            stack.append("...")  # an operand: the result is another value
        elif name == "BINARY_SUBSCR":
            stack.append(f"{parts[0]}[{parts[1]}]")
        else:
            stack.append(", ".join(parts) if name == "BUILD_TUPLE" else "...")
