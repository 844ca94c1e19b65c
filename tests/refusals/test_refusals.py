"""Every rule of docs/refusals.md has its pair of kernels, and the pair does what the rule says."""

import re

import pytest

from nki_dist.codes import CODES, EVIDENCE
from nki_dist.errors import NkiError
from tests.refusals.page import PAGE, page, rules

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

RULES = rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_pair(rule):
    rule.check()


def test_the_page_has_the_rules():
    assert PAGE.read_text() == page(), "run: python -m tests.refusals"
    rows = re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [rule.name for rule in RULES]
    assert len(set(rows)) == len(rows)


def test_rules_say_where_they_come_from():
    for rule in RULES:
        assert rule.says[0].isupper() or rule.says[0] == "`"
        assert not rule.says.endswith(".")
        assert len(rule.source) > 8
        assert len(rule.message) > 8
        assert "|" not in rule.says + rule.source + rule.warns


def test_evidence_is_of_rules_that_only_warn():
    assert set(EVIDENCE) <= {rule.code for rule in RULES if rule.warns}
    for evidence in EVIDENCE.values():
        assert re.search(r"\.(py|rst):\d+$", evidence.kernel)
        assert evidence.ran


def test_refusals_have_codes():
    for rule in RULES:
        try:
            found = rule.run(bad=True)[0].code
        except NkiError as error:
            found = error.code
        assert found in CODES, rule.name
