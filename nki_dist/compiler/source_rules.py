"""Python that AWS's compiler doesn't take, found in the source of what was traced.

From NKI 0.3 on AWS's compiler reads the source of a kernel and of the functions it calls, and knows
a part of Python. Here Python runs them, so nothing would be noticed. The functions that were on the
way to an instruction are read once they have been traced.

What the documentation names is an error, unless published kernels do it; that, and what is only
reported, is a warning. Functions that never led to an instruction, lambdas, code without source,
kernels of Beta 1 (which AWS ran, too), those that this package ships (AWS's compiler has its own)
and Python's own aren't judged.
`is None` is let through although the documentation forbids `is`: AWS's own library has hundreds.

Follows: NKI migration guide, 0.2 to 0.3, "Language restrictions"; NKI language guide, "NKI Values".
Reports are listed with their pairs of kernels in docs/refusals.md.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, TypeAlias

from nki_dist.compiler.locations import is_users
from nki_dist.errors import CompileError, CompilerMayRejectWarning, Diagnostic, NkiError

Finding: TypeAlias = "tuple[int, Diagnostic]"  # the line, and what is said without a place

_IDENTITY = (ast.Is, ast.IsNot)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_JUDGED = frozenset(
    {ast.Compare, ast.Dict, ast.FunctionDef, ast.AsyncFunctionDef, ast.Raise, ast.Assign, ast.For}
    | {ast.Call, *_COMPREHENSIONS}
)
_LEAVES = frozenset(  # without children that could be judged
    {ast.Name, ast.Constant, ast.Pass, ast.Break, ast.Continue, ast.Import, ast.ImportFrom}
    | {ast.Global, ast.Nonlocal, ast.Load, ast.Store, ast.Del}
    | {*ast.operator.__subclasses__(), *ast.unaryop.__subclasses__()}
    | {*ast.cmpop.__subclasses__(), *ast.boolop.__subclasses__()}
)
_ORDERING = frozenset({"sorted", "set", "frozenset"})
_OF_INTEGERS = frozenset({"bit_length", "bit_count"})
_LOOPS = frozenset({"fori_loop", "while_loop"})


def check_sources(functions: Iterable[CodeType]) -> list[CompilerMayRejectWarning]:
    """What AWS's compiler may refuse in these functions.

    Raises:
        CompileError: something that the documentation says it refuses.
    """
    found: dict[str, Diagnostic] = {}
    for code in sorted(functions, key=lambda c: (c.co_filename, c.co_firstlineno)):
        judged = _judged(code) if is_users(code.co_filename) else ()
        for line, told in judged:
            place = f"{code.co_filename}:{line}"
            finding = type(told)(told.message, code=told.code, location=place)
            found.setdefault(f"{finding.location} {finding.code}", finding)
    for finding in found.values():
        if isinstance(finding, NkiError):
            raise finding
    return [f for f in found.values() if isinstance(f, CompilerMayRejectWarning)]


def _judged(code: CodeType) -> tuple[Finding, ...]:
    """What is found in the `def` of a function; nothing if it can't be found in its file."""
    linecache.checkcache(code.co_filename)  # a reloaded module has other lines
    lines = linecache.getlines(code.co_filename)
    first = code.co_firstlineno
    if code.co_name.startswith("<") or not 0 < first <= len(lines):
        return ()
    block = "".join(_block(lines, first - 1, _last_line(code)))
    found = _read(block, 1, code.co_name)
    if found is None:
        found = _read("".join(lines), first, code.co_name)
        return found or ()
    return tuple((first - 1 + line, told) for line, told in found)


def _last_line(code: CodeType) -> int:
    """The last line that has code of a function, those inside it included."""
    last = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
    inner = (_last_line(c) for c in code.co_consts if isinstance(c, CodeType))
    return max([last, *inner])


def _block(lines: list[str], start: int, end: int) -> list[str]:
    """Lines of a function from its first; a call's last brackets stand after its last code."""
    indent = len(lines[start]) - len(lines[start].lstrip())
    while end < len(lines):
        text = lines[end].strip()
        if text and len(lines[end]) - len(lines[end].lstrip()) <= indent and text[0] not in ")]}":
            break
        end += 1
    return [line[indent:] if line[:indent].isspace() else line for line in lines[start:end]]


@lru_cache(maxsize=1024)
def _read(text: str, first: int, name: str) -> tuple[Finding, ...] | None:
    """What is found in the function that begins at a line of a text; None if it can't be read.

    A kernel is compiled for many shapes, and kernels share their helpers, so texts come again.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # text at column 0, or a file that isn't what was compiled
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            top = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if top == first:
                return tuple(findings(node))
    return None


def findings(function: ast.FunctionDef) -> Iterator[Finding]:
    """What is found in a function that may have been read only."""
    bodies: set[str] | None = None
    for node in _judged_nodes(function):
        if isinstance(node, ast.Compare):
            yield from _identity(node)
        elif isinstance(node, ast.Dict):
            yield from _keys(node)
        elif isinstance(node, _COMPREHENSIONS):
            lazy = isinstance(node, ast.GeneratorExp)
            yield _refused_by_aws(
                node,
                f"a {'generator expression' if lazy else 'comprehension'}; AWS's compiler is "
                "reported to refuse it in kernels and the functions they call",
                code="python-generator" if lazy else "python-comprehension",
            )
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            bodies = _loop_bodies(function) if bodies is None else bodies
            if node.name not in bodies:
                yield _refused_by_aws(
                    node,
                    f"{node.name} is defined inside {function.name}; AWS's compiler is reported to "
                    "refuse inner functions, other than the bodies of nl.fori_loop and "
                    "nl.while_loop",
                    code="python-inner-function",
                )
        elif isinstance(node, ast.Raise):
            yield _refused_by_aws(
                node,
                "a raise statement; AWS's compiler is reported to refuse it wherever it stands "
                "in a kernel, also where it is never reached",
                code="python-raise",
            )
        elif isinstance(node, (ast.Assign, ast.For)):
            yield from _targets(node)
        elif isinstance(node, ast.Call):
            yield from _calls(node)


def _refused_by_aws(node: Any, message: str, *, code: str) -> Finding:
    return node.lineno, CompilerMayRejectWarning(message, code=code)


def _judged_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function's body that may be judged, in the order of the text.

    Bodies of functions inside it are judged by themselves.
    """
    stack: list[Any] = list(reversed(function.body))
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind in _JUDGED:
            yield node
        if kind in _LEAVES or kind in _FUNCTIONS:
            continue
        for field in reversed(kind._fields):  # ast.iter_child_nodes, without its generators
            value = getattr(node, field, None)
            if isinstance(value, list):
                stack += [item for item in reversed(value) if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                stack.append(value)


def _loop_bodies(function: ast.FunctionDef) -> set[str]:
    """Names that are given to a dynamic loop as its body."""
    return {
        argument.id
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and _called(node) in _LOOPS
        for argument in [*node.args, *(k.value for k in node.keywords)]
        if isinstance(argument, ast.Name)
    }


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _identity(node: ast.Compare) -> Iterator[Finding]:
    left = node.left
    for operator, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(operator, _IDENTITY) and not (_is_none(left) or _is_none(right)):
            word, instead = ("is", "==") if isinstance(operator, ast.Is) else ("is not", "!=")
            yield _refused_by_aws(
                node,
                f"`{ast.unparse(left)} {word} {ast.unparse(right)}`: the migration guide says "
                f"that AWS's compiler doesn't know `{word}`; write `{instead}`",
                code="python-identity",
            )
        left = right


def _keys(node: ast.Dict) -> Iterator[Finding]:
    for key in node.keys:
        if isinstance(key, ast.Constant) and not isinstance(key.value, str):
            message = f"a dict with the key {key.value!r}; dicts of kernels have strings as keys"
            yield node.lineno, CompileError(message, code="python-dict-key")
            return


def _targets(node: ast.Assign | ast.For) -> Iterator[Finding]:
    loop = isinstance(node, ast.For)
    for target in [node.target] if isinstance(node, ast.For) else node.targets:
        if not isinstance(target, (ast.Tuple, ast.List)):
            continue
        if loop or any(isinstance(element, ast.Subscript) for element in target.elts):
            what = "several loop variables" if loop else "unpacking into subscripts"
            yield _refused_by_aws(
                target,
                f"{what} (`{ast.unparse(target)}`); AWS's compiler is reported to refuse it. "
                "Unpack into names, one statement further",
                code="python-targets",
            )


def _calls(node: ast.Call) -> Iterator[Finding]:
    name = _called(node)
    method = isinstance(node.func, ast.Attribute)
    if (name in _ORDERING and not method) or (name == "sort" and method) or name in _OF_INTEGERS:
        yield _refused_by_aws(
            node,
            f"a call of {name}(); AWS's compiler is reported not to know it. Compute the value "
            "outside the kernel and pass it as an argument",
            code="python-builtin",
        )
