"""Errors as data: what tools read from them, and that it travels with them."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import nki_dist
from nki_dist import codes, errors


def error(**more: Any) -> errors.NkiError:
    return errors.NkiValidationError("two of three", code="psum-bank", **more)


def test_to_dict():
    found = error(
        location="C:/k.py:12",
        core=np.int64(1),
        instruction="nisa.nc_matmul",
        numbers={
            "got": np.int32(3),
            "allowed": (1, 2),
            "scale": np.float32(0.5),
            "x": float("nan"),
        },
    ).to_dict()
    assert found == {
        "code": "psum-bank",
        "aws": [],
        "type": "NkiValidationError",
        "severity": "error",
        "message": "two of three",
        "file": "C:/k.py",
        "line": 12,
        "core": 1,
        "instruction": "nisa.nc_matmul",
        "hint": "Write at most 2 KiB per partition at a time (512 float32), within one bank.",
        "numbers": {"got": 3, "allowed": [1, 2], "scale": 0.5, "x": "nan"},
    }
    bare = error().to_dict()
    assert (bare["file"], bare["line"], bare["core"], bare["numbers"]) == (None, None, None, {})


def test_texts_carry_the_remedy_once_and_then_the_policy():
    usual = codes.CODES["psum-bank"].hint
    assert str(error()) == f"two of three [psum-bank]\n  hint: {usual}" and error().hint == usual
    told = error(location="k.py:1", hint="do it", policy="check='x=y' looks away")
    assert str(told) == (
        "two of three\n  at k.py:1 [psum-bank]\n  hint: do it\n  policy: check='x=y' looks away"
    )
    assert told.hint == "do it; check='x=y' looks away"
    # What the message says itself isn't printed, and is there as data.
    assert str(error(hint="")) == "two of three [psum-bank]" and error(hint="").hint == usual
    assert str(errors.CompileError("a\n  - b", code="outside-kernel")).endswith("[outside-kernel]")
    assert str(errors.DeadlockError("a\n  - b")).startswith("a\n  - b\n  [deadlock]\n  hint: Let")
    assert str(errors.NkiError("x", code="of-others")) == "x [of-others]"


def test_errors_travel_with_everything():
    sent = error(location="k.py:1", numbers={"got": 1}, hint="do it").at(core=3)
    came = pickle.loads(pickle.dumps(sent))
    assert came.to_dict() == sent.to_dict() and str(came) == str(sent)
    race = errors.RaceError("r", hint="wait", policy="lift it")
    warned = errors.as_warning(race, errors.RaceWarning)
    assert (warned.code, warned.hint, warned.to_dict()["type"]) == ("race", "wait", "RaceWarning")


def test_aws_codes_may_be_of_one_instruction():
    wrong = {"code": "matmul-contraction", "location": "k.py:1"}
    for instruction, aws in (("nisa.nc_matmul_mx", ("NCC_EVRF050",)), ("nisa.nc_matmul", ())):
        assert errors.NkiError("x", instruction=instruction, **wrong).aws == aws


FIGURES = re.compile(
    r"^len\(|^\w+(\.\w+)*\.(shape|nbytes|itemsize)$|\b(most|least|limit)$|^(most|least|limit)\b"
)
"""Values that a message says and that are surely quantities."""


def _without_numbers() -> Iterator[str]:
    """Places that put a quantity into the text of a message, and not into its `numbers`."""
    kinds = {
        n
        for n, v in vars(errors).items()
        if isinstance(v, type) and issubclass(v, errors.Diagnostic)
    }
    package = Path(nki_dist.__file__).parent
    for path in sorted(package.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            if name not in kinds or {k.arg for k in call.keywords} & {"numbers", None}:
                continue
            values = [v for v in ast.walk(call.args[0]) if isinstance(v, ast.FormattedValue)]
            said = [t for v in values if FIGURES.search(t := ast.unparse(v.value))]
            if said:
                yield f"{path.relative_to(package)}:{call.lineno}: {', '.join(said)}"


def test_quantities_that_messages_say_are_numbers():
    assert list(_without_numbers()) == []


def test_many_ranks_are_a_text_with_ranges():
    numbers = error(numbers={"got": list(range(4096)), "few": [1, 2]}).to_dict()["numbers"]
    assert numbers == {"got": "[0-4095]", "few": [1, 2]}
