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
        check_kernel(wrong.kernel, wrong.reference, wrong.cases, **wrong.options)
    report = caught.value.report
    texts = [f"{f.code}: {f}" for f in report.failures]
    found = [
        text for text in texts if re.match(wrong.code, text) and re.search(wrong.pattern, text)
    ]
    assert found, "\n".join(texts)
    # and nothing else is said, but for values that are wrong because of it
    codes = {f.code for f in report.failures if not re.match(wrong.code, f.code)}
    assert codes <= {"wrong-value", "program-varies"}, codes
    assert "WRONG" in str(report)
