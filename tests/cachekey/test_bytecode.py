"""What code reads, by `cachekey.bytecode` and by the standard library's `dis`, on that library."""

import dis
import importlib.util
from pathlib import Path
from types import CodeType

import pytest

from nki_dist.launcher.cachekey import bytecode

MODULES = [
    "argparse",
    "asyncio.base_events",
    "collections",
    "dataclasses",
    "enum",
    "inspect",
    "numpy.lib._function_base_impl",
    "turtle",  # module and classes that bind much
    "typing",
    "unittest.mock",
]
COUNTED = frozenset({"EXTENDED_ARG", "CACHE"})
RESOLVED = {*dis.hasname, *dis.haslocal, *dis.hasfree, *dis.hasconst}


def nested(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def same(code):
    ours = bytecode.instructions(code)
    for i in dis.get_instructions(code):
        if i.opname in COUNTED:
            continue
        name, argument = next(ours)
        if i.opname.count("_FAST") == 2:  # on two locals: given as two
            name, argument = zip((name, argument), next(ours))
            name, argument = "_".join(name), tuple(argument)
        assert name == i.opname
        if i.opcode in RESOLVED and i.opname != "KW_NAMES":  # 3.11 doesn't say what it is
            assert argument == i.argval or argument != argument, (code, i)
        assert (argument is None) <= (i.opcode < dis.HAVE_ARGUMENT or i.argval is None)
    assert next(ours, None) is None


@pytest.mark.parametrize("module", MODULES)
def test_as_dis_reads_it(module):
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None or not Path(found.origin).is_file():
        pytest.skip("not in this version")
    text = Path(found.origin).read_text(encoding="utf-8")
    for code in nested(compile(text, module, "exec")):
        same(code)


def test_arguments_of_more_than_a_byte():
    names = [f"name_{n}" for n in range(300)]
    lines = [f"    {name} = {name}_global.attribute_{name}({n})" for n, name in enumerate(names)]
    lines += [f"    {name}.other = inner = lambda: {name}" for name in names]
    for code in nested(compile("def f():\n" + "\n".join(lines), "x", "exec")):
        same(code)
