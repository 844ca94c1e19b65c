"""Kernel arguments: which are tensors, what the compiler may know of them, and getting them back.

Arrays anywhere in the arguments (inside lists, dicts, dataclasses, kernel structs) are the tensors;
everything else is a compile-time value. One array passed twice is one tensor.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np

from nki_dist import dtypes, frameworks
from nki_dist.compiler.locations import kernel_location, users_line
from nki_dist.compiler.ownership import foreign, owns
from nki_dist.compiler.trace import Trace
from nki_dist.dtypes import DType
from nki_dist.errors import (
    CompileError,
    CompilerMayRejectWarning,
    LaunchError,
    NkiValidationError,
)
from nki_dist.isa.checks import check_size
from nki_dist.isa.described import advice, described
from nki_dist.language.tensor import NkiTensor
from nki_dist.launcher.in_hbm import InHbm
from nki_dist.launcher.tensor_spec import TensorSpec
from nki_dist.program import Access, MemoryRegion, TensorSignature
from nki_dist.program.pytree import flatten, tree_map

Args: TypeAlias = "tuple[Any, ...]"
Kwargs: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True)
class PerRank:
    """An argument that differs between ranks: a list with one entry per rank, or a function."""

    values: Sequence[Any] | Callable[[int], Any]

    def of(self, rank: int, ranks: int, name: str = "") -> Any:
        """What a rank gets.

        Args:
            name: of the argument, for messages.

        Raises:
            LaunchError: there is nothing for the rank, the function raised, or it is a
                DeviceTensor.
        """
        value = self._of(rank, ranks, name)
        if not isinstance(value, np.ndarray):
            for _, leaf in flatten(value, is_array)[0]:
                if isinstance(leaf, InHbm):
                    raise LaunchError(
                        f"per_rank has {leaf!r} for rank {rank}, which has a part in the HBM of "
                        "every rank already",
                        location=users_line(),
                        code="per-rank",
                        hint="pass the tensor as it is; where ranks differ, put it so: "
                        "world.put(nki.per_rank([array of rank 0, array of rank 1, ...]))",
                    )
        return value

    def _of(self, rank: int, ranks: int, name: str) -> Any:
        if callable(self.values):
            self._refuse_without_rank(rank)
            try:
                return self.values(rank)
            except Exception as error:
                what = f"argument {name}: " if name else ""
                raise LaunchError(
                    f"{what}the function of per_rank raised {type(error).__name__} for rank "
                    f"{rank}: {error}",
                    code="per-rank",
                    numbers={"rank": rank},
                ) from error
        if not hasattr(self.values, "__len__"):
            raise LaunchError(
                f"per_rank({self.values!r}); allowed: a list with one entry per rank, or a "
                "function of the rank",
                code="per-rank",
            )
        if len(self.values) != ranks:
            raise LaunchError(
                f"per_rank has {len(self.values)} entries, the world {ranks} ranks; give one each",
                code="per-rank",
                numbers={"got": len(self.values), "allowed": ranks},
            )
        return self.values[rank]

    def _refuse_without_rank(self, rank: int) -> None:
        try:
            inspect.signature(self.values).bind(rank)  # type: ignore[arg-type]
        except ValueError:  # it has no signature that Python knows
            return
        except TypeError:
            raise LaunchError(
                f"per_rank({self.values!r}); a function is called with the rank, as in "
                "per_rank(lambda rank: shards[rank])",
                location=users_line(),
                code="per-rank",
            ) from None


def per_rank(values: Sequence[Any] | Callable[[int], Any]) -> PerRank:
    """Give every rank its own array.

    Args:
        values: a list with one entry per rank, or a function from rank to array. A function is
            called at every launch where the array is needed, on a cluster on the node of the rank;
            it returns arrays of one shape and dtype, and equal ones for equal ranks.
    """
    return PerRank(values)


@dataclass(frozen=True)
class Same:
    """In the place of an argument: what binding it has given for another rank."""

    value: Any


@dataclass
class BoundArguments:
    """Arguments of one launch.

    Attributes:
        args, kwargs: the arguments with signatures in place of arrays.
        signatures: the tensors, by index.
        originals: what the caller passed for each tensor.
        arrays: the same as NumPy arrays.
        framework: of the results; None for NumPy.
        stays: whether some of the tensors stay in HBM.
    """

    args: Args
    kwargs: Kwargs
    signatures: list[TensorSignature]
    originals: list[Any]
    arrays: list[np.ndarray]
    framework: Any
    stays: bool

    def bind(self, trace: Trace) -> tuple[Args, Kwargs]:
        """The arguments with the trace's tensors in place."""
        tensors = [trace.input(s.index, s.shape, s.dtype, s.name) for s in self.signatures]

        def place(leaf: Any) -> Any:
            return tensors[leaf.index] if isinstance(leaf, TensorSignature) else leaf

        args, kwargs = tree_map(place, (self.args, self.kwargs))
        return args, kwargs


def inputs_where(bound: Sequence[BoundArguments], holds: Callable[[Any], bool]) -> set[int]:
    """Indices of the inputs of which something holds, as the caller passed them, on some rank."""
    distinct = {id(b): b for b in bound}.values()
    return {n for b in distinct for n, array in enumerate(b.originals) if holds(array)}


def of_rank(value: Any, rank: int, ranks: int) -> Any:
    """An argument as one rank gets it."""
    return value.of(rank, ranks) if isinstance(value, PerRank) else value


def is_array(value: Any) -> bool:
    known = isinstance(value, (np.ndarray, InHbm))
    return known or frameworks.describe(value) is not None


def bind_arguments(function: Callable[..., Any], args: Args, kwargs: Kwargs) -> BoundArguments:
    """Separate tensors from compile-time values.

    Raises:
        LaunchError: the arguments don't fit the kernel's parameters.
        NkiValidationError: an array has a dtype that NKI doesn't know.
    """
    names = _parameter_names(function, args, kwargs)
    signatures: list[TensorSignature] = []
    originals: list[Any] = []
    arrays: list[np.ndarray] = []
    seen: dict[int, TensorSignature] = {}
    stays = False

    def take(path: str, value: Any) -> Any:
        nonlocal stays
        if isinstance(value, PerRank):
            raise LaunchError(
                f"argument {path} is an nki.per_rank inside another value; make the whole argument "
                "per_rank: nki.per_rank([value of rank 0, value of rank 1, ...])",
                code="per-rank",
            )
        if isinstance(value, TensorSpec):
            raise LaunchError(
                f"argument {path} is a TensorSpec, which has no contents to run with; pass an "
                "array, or ask for what needs none: nki.estimate(kernel)(...), World.dry_run",
                location=users_line(),
                code="argument-kind",
            )
        if not is_array(value):
            return value
        leaf = seen.get(id(value))
        if leaf is None:
            array, shape, dtype = take_array(function, path, value)
            leaf = seen[id(value)] = TensorSignature(len(signatures), shape, dtype, path)
            signatures.append(leaf)
            stays = stays or isinstance(value, InHbm)
            originals.append(value)
            arrays.append(array)
        return leaf

    new_args = tuple(_walk(take, name, value) for name, value in zip(names, args))
    new_kwargs = {name: _walk(take, name, value) for name, value in kwargs.items()}
    foreign = originals and not isinstance(originals[0], np.ndarray)
    framework = frameworks.describe(originals[0]) if foreign else None
    return BoundArguments(new_args, new_kwargs, signatures, originals, arrays, framework, stays)


def take_array(function: Any, path: str, value: Any) -> tuple[np.ndarray, tuple[int, ...], DType]:
    """An array argument as a NumPy array, and the shape and dtype that a kernel knows it by.

    Args:
        function: the kernel, or its name.
        path: of the argument.
        value: an array of any library.

    Raises:
        LaunchError: it is masked.
        NkiValidationError: NKI has no such dtype.
    """
    of_numpy = isinstance(value, np.ndarray)
    if not of_numpy and isinstance(value, InHbm):
        return value.hollow, value.shape, value.nki_dtype
    # Of others nothing is asked: importing np.ma takes time, and a lock.
    if of_numpy and type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):
        raise LaunchError(
            f"argument {path} is a masked array, and kernels don't know its mask; pass its "
            ".filled(...) or .data, and the mask as another argument",
            location=users_line(),
            code="array-kind",
        )
    array = value if of_numpy else frameworks.to_numpy(value)
    dtype = dtypes.of_numpy(array.dtype)
    if dtype is None:
        raise _foreign(function, path, value, array.dtype)
    return array, array.shape if array.ndim else (1,), dtype


def _foreign(function: Any, path: str, value: Any, dtype: np.dtype) -> NkiValidationError:
    """The error for an array of a dtype that NKI doesn't know, at the line that passed it."""
    name = getattr(function, "__name__", function)
    return NkiValidationError(
        f"argument {path} of {name} has dtype {dtype}, which NKI has no type for. NKI's types are "
        f"{', '.join(d.name for d in (*dtypes.ALL, *dtypes.WIDE))}",
        location=users_line(),
        code="dtype-unknown",
        hint=f"pass {frameworks.remedy(path, value, dtype)}",
    )


def _is_leaf(value: Any) -> bool:
    return is_array(value) or isinstance(value, TensorSpec)


def _walk(take: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    if isinstance(value, Same):
        return value.value
    if is_array(value):
        return take(name, value)
    if value is None or isinstance(value, (int, float, str, bool)):
        return value
    leaves, tree = flatten(value, _is_leaf, root=name)
    return tree.unflatten(take(path, leaf) for path, leaf in leaves)


def _parameter_names(function: Callable[..., Any], args: Args, kwargs: Kwargs) -> list[str]:
    """Names for the positional arguments, after checking that the call fits the signature."""
    if isinstance(function, FunctionType) and not function.__dict__ and not kwargs:
        code = function.__code__
        plain = not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        if plain and not code.co_kwonlyargcount and len(args) == code.co_argcount:
            return list(code.co_varnames[: len(args)])  # one argument for each parameter
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise LaunchError(
            f"{getattr(function, '__name__', function)}(): {error}; its parameters are "
            f"{inspect.signature(function)}",
            location=kernel_location(function),
            code="call-signature",
        ) from None
    names: list[str] = []
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{name}[{n}]" for n in range(len(value))]
        elif kind in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            names.append(name)
    return names[: len(args)]


def not_a_kernel(value: Any) -> LaunchError:
    """The error for something else in the place of a kernel, such as its result."""
    called = "; was the kernel called already? Pass it as it is, without arguments"
    return LaunchError(
        f"a kernel is a function, got {described(value)}{called if is_array(value) else ''}",
        location=users_line(),
        code="kernel-function",
    )


def return_location(function: Any) -> str | None:
    """Where a kernel returns: its only `return`, or its first line if there are several."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return None
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        # No source, a lambda inside an expression, or a file that isn't what was compiled.
        return kernel_location(function)
    found = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Return)]
    if len(found) != 1:
        return kernel_location(function)
    return f"{code.co_filename}:{first + found[0] - 1}"


def collect_outputs(function: Callable[..., Any]) -> Callable[[Trace, Any], Any]:
    """What a kernel may return: tensors in HBM, in lists, tuples and dicts, and None."""

    def outputs(trace: Trace, result: Any) -> Any:
        return tree_map(lambda leaf: check(trace, leaf), result)

    def check(trace: Trace, leaf: Any) -> Any:
        if leaf is None:
            return None
        if not isinstance(leaf, NkiTensor):
            raise CompileError(
                f"the kernel returned {described(leaf)}; allowed: a tensor in shared_hbm, a tuple, "
                f"list or dict of them, or nothing{advice(leaf)}",
                location=return_location(function),
                core=trace.core,
                code="return-value",
            )
        if not owns(trace.program, leaf.storage):
            raise foreign(leaf.storage.label).at(location=trace.where(), core=trace.core)
        if leaf.buffer.on_chip or leaf.dynamic is not None:
            raise CompileError(
                f"the kernel returned {leaf.storage.label}; a returned tensor must be in "
                "shared_hbm: copy it there with nisa.dma_copy and return that",
                location=return_location(function),
                core=trace.core,
                code="return-memory",
            )
        check_size("a returned tensor", leaf, leaf.storage.nbytes, "its memory")
        if leaf.storage.role == "local" and leaf.storage.region is MemoryRegion.private_hbm:
            if not trace.beta1:
                trace.warn(_private_result(function, leaf))
            trace.publish(leaf.storage)
        return Access(leaf.storage, leaf.offset, leaf.shape, leaf.strides, leaf.dtype)

    return outputs


def _private_result(function: Any, leaf: NkiTensor) -> CompilerMayRejectWarning:
    # A warning, because a page of AWS's interface (nonzero_with_count) has such a kernel.
    return CompilerMayRejectWarning(
        f"the kernel returned {leaf.storage.label}; the migration guide says that results have to "
        "be in nl.shared_hbm, and that compilation fails with nl.hbm",
        code="return-private",
        location=return_location(function),
    )
