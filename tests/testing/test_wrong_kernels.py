"""Every wrong kernel is found, and the report says what is wrong with it."""

from __future__ import annotations

import re

import pytest

from nki_dist.testing import CheckFailed, check_kernel
from tests.testing import wrong_kernels
from tests.testing.wrong_kernels import WRONG, Wrong


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_is_found(wrong: Wrong) -> None:
    wrong_kernels.SEEN.clear()
    with pytest.raises(CheckFailed) as caught:
        options = {"seeds": (0,), **wrong.options}
        check_kernel(wrong.kernel, wrong.reference, wrong.cases, **options)
    report = caught.value.report
    kinds = [f.code if f.type == "Failure" else f.type for f in report.failures]
    texts = [f"{kind}: {f}" for kind, f in zip(kinds, report.failures)]
    found = [
        text for text in texts if re.match(wrong.kind, text) and re.search(wrong.pattern, text)
    ]
    assert found, "\n".join(texts)
    # and nothing else is said, but for values that are wrong because of it
    others = {kind for kind in kinds if not re.match(wrong.kind, kind)}
    assert others <= {"wrong-value", "program-varies"}, others
    assert "WRONG" in str(report)
