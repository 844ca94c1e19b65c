"""Every rule does what its example says, only once, and the page has them all."""

import ast
import sys
from pathlib import Path

import pytest

from nki_dist.migrate import migrate
from nki_dist.migrate.rules import PAGES

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

from migrate_rules import RULES, table

BETA1 = """\
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
"""
CURRENT = BETA1.replace("neuronxcc.", "").replace("import nki as nki", "import nki")
OF_BETA1 = {"index", "mask", "par-dim", "dst", "tile-operator", "undecided", "measure", "instances"}
OF_BETA1 |= {"removed", "range", "simulate", "baremetal", "allocator", "hint", "loop-reduce"}


def program(rule, example, header):
    """An example with what it needs around it."""
    lines = [header]
    if rule.name == "import":
        return example + "\n"
    if rule.name in ("grid", "instances", "measure", "simulate", "baremetal"):
        lines.append("@nki.jit\ndef f(x):\n    return x\n\n")
        lines.append(example + "\n")
    elif example.startswith("@"):
        lines.append(example + "\n")
    else:
        lines.append("\ndef kernel(x, out, n):\n")
        if rule.name == "mask":
            lines.append("    t = nl.load(x)\n")
        lines.append("".join(f"    {line}\n" if line else "\n" for line in example.splitlines()))
    return "".join(lines)


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_examples(rule):
    beta1 = rule.name in OF_BETA1
    before = program(rule, rule.before, BETA1 if beta1 else CURRENT)
    done = migrate(before)
    if rule.automatic:
        want = program(rule, rule.after, CURRENT)
        assert ast.unparse(ast.parse(done.text)) == ast.unparse(ast.parse(want))
        assert rule.name in {found.rule for found in done.changes}
        assert not done.decisions
    else:
        assert rule.name in {found.rule for found in done.decisions}


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_second_run_changes_nothing(rule):
    once = migrate(program(rule, rule.before, BETA1 if rule.name in OF_BETA1 else CURRENT))
    assert migrate(once.text).text == once.text


def test_the_page_has_the_rules():
    page = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
    assert table() in page, "python docs/migrate_rules.py"
    assert PAGES.keys() == RULES.keys()


def test_comments_and_layout_stay():
    text = BETA1 + "\n# why\nfor i in nl.affine_range(3):  # three\n    print( i )\n"
    assert migrate(text).text == CURRENT + "\n# why\nfor i in range(3):  # three\n    print( i )\n"


def test_lines_are_those_of_the_file():
    text = BETA1 + "\n\ndef f(x):\n    t = nl.load(x)\n    u = t * 2.0\n    return u @ t\n"
    (found,) = migrate(text).decisions
    assert (found.rule, found.line) == ("undecided", 10)


def test_ranges_stay_in_0_6():
    text = CURRENT + "for i in nl.affine_range(3):\n    pass\n"
    assert migrate(text, "0.6").text == text


@pytest.mark.parametrize(
    "loop, function",
    [
        ("for i in nl.dynamic_range(n):\n        nl.store(x[i], t)", "nl.fori_loop"),
        (
            "r = nisa.register_alloc(3)\n    while r:\n        nisa.register_load(r, t)",
            "nl.while_loop",
        ),
    ],
)
def test_loops_that_a_person_moves(loop, function):
    text = CURRENT + f"\ndef kernel(x, t, n):\n    {loop}\n"
    done = migrate(text)
    assert done.text == text
    (found,) = done.decisions
    assert found.rule == "loop" and function in found.message
    assert not migrate(text, "0.6").decisions


def test_an_unknown_loop_condition_is_left():
    text = CURRENT + "\ndef kernel(n):\n    while n:\n        n = n - 1\n"
    done = migrate(text)
    assert done.text == text and not done.decisions


def test_names_that_are_gone_arent_imported():
    text = BETA1 + "from neuronxcc.nki.language import par_dim\nfrom neuronxcc.nki import jit\n"
    text += "from neuronxcc.nki import trace\n"
    text += "@trace\ndef f(x):\n    return nl.zeros((par_dim(128), 2), dtype=nl.float32)\n"
    done = migrate(text)
    assert done.text == CURRENT + (
        "from nki import jit\n@nki.jit\ndef f(x):\n"
        "    return nl.zeros((128, 2), dtype=nl.float32)\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 0; from neuronxcc.nki.compiler import {}; y = 2", "x = 0; pass; y = 2"),
        ("from neuronxcc.nki.compiler import {}; y = 2", "pass; y = 2"),
        ("if True: from neuronxcc.nki.compiler import {}", "if True: pass"),
        (
            "try:\n    from neuronxcc.nki.compiler import {}\nexcept ImportError:\n    y = 2",
            "try:\n    pass\nexcept ImportError:\n    y = 2",
        ),
        ("from neuronxcc.nki.compiler import {}  # why\ny = 2", "y = 2"),
    ],
)
def test_what_is_beside_an_import_that_goes_stays(before, after):
    assert migrate(before.format("enable_stack_allocator")).text == after
