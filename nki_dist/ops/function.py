"""The functions that operations call: a closed list, each with what it reads and writes.

A function gets arrays, numbers and what else its operation gives it, by position. Which of its
arguments it reads and writes is declared, never found out, because what may run at the same time
follows from it (see `tests/ops`, which try every declaration). Functions are known by name, so that
operations can be printed, compared and sent to other processes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nki_dist.dtypes import DType
from nki_dist.dtypes.casts import converter
from nki_dist.dtypes.dtype import of
from nki_dist.dtypes.scratch import Scratch

Call = Callable[..., Any]

_BY_NAME: Final[dict[str, Function]] = {}


@dataclass(eq=False, repr=False, slots=True)
class Function:
    """A function that operations may call.

    Args:
        name: of its own among all functions.
        call: the function; of one with `make`, whatever does the same with memory of its own.
        reads, writes: numbers of arguments; registers among them stand for what they hold.
        raises: it may raise an NkiError.
        ordered: it does what is seen outside, in the order of the program.
        make: gives the function for those who share working memory, which it needs.
    """

    name: str
    call: Call
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    raises: bool = False
    ordered: bool = False
    make: Callable[[Scratch], Call] | None = None

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def within(self, scratch: Scratch) -> Call:
        """What calls it, with this working memory."""
        return self.call if self.make is None else self.make(scratch)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __reduce__(self) -> Any:
        return find, (self.name,)


def function(
    reads: str = "",
    writes: str = "",
    name: str = "",
    raises: bool = False,
    ordered: bool = False,
) -> Callable[[Call], Function]:
    """Declare a function of arrays, by the names of its parameters.

    Args:
        reads, writes: parameters, separated by spaces; one whose elements it may leave is in both.
        name: if it isn't the function's own.
        raises, ordered: see `Function`.
    """

    def declared(call: Call) -> Function:
        parameters = list(inspect.signature(call).parameters)
        read, written = (tuple(map(parameters.index, names.split())) for names in (reads, writes))
        called = name or call.__name__.lstrip("_").replace("_", " ")
        return _registered(Function(called, call, read, written, raises, ordered))

    return declared


def _registered(new: Function) -> Function:
    """The function of that name, which is this one unless another thread has just made it, too."""
    found = _BY_NAME.setdefault(new.name, new)
    if found.call is not new.call and (found.make is None or new.make is None):
        raise TypeError(f"two functions are called {new.name}")
    return found


def find(name: str) -> Function:
    """The function of that name.

    Raises:
        LookupError: there is none.
    """
    found = _BY_NAME.get(name)
    if found is None and name.startswith("convert "):
        _, src, dst = name.split()
        return conversion(of(src), of(dst))
    if found is None and isinstance(ufunc := getattr(np, name, None), np.ufunc):
        return of_ufunc(ufunc)
    if found is None:
        raise LookupError(f"no function is called {name!r}")
    return found


def functions() -> list[Function]:
    """All that have been declared, by name."""
    return [_BY_NAME[name] for name in sorted(_BY_NAME)]


# NumPy 2.4 warns at each call of these that gives `out` by position.
_OUT_BY_NAME: Final[dict[np.ufunc, Call]] = {
    np.maximum: lambda a, b, out: np.maximum(a, b, out=out),
    np.minimum: lambda a, b, out: np.minimum(a, b, out=out),
}


@functools.cache
def of_ufunc(ufunc: np.ufunc) -> Function:
    """One of NumPy's, which writes its last argument and reads all others."""
    call = _OUT_BY_NAME.get(ufunc, ufunc)
    return _registered(Function(ufunc.__name__, call, tuple(range(ufunc.nin)), (ufunc.nin,)))


@functools.cache
def conversion(src: DType, dst: DType) -> Function:
    """`f(out, inp)`, which converts between dtypes with one rounding; see dtypes.casts."""
    if src is dst and converter(src, dst) is np.copyto:
        return copy
    return _registered(
        Function(
            f"convert {src.name} {dst.name}",
            lambda out, inp: converter(src, dst)(out, inp),
            (1,),
            (0,),
            make=lambda scratch: converter(src, dst, scratch=scratch),
        )
    )


# Converts between NumPy's types as NumPy's own rules allow.
copy: Final = _registered(Function("copy", np.copyto, (1,), (0,)))
