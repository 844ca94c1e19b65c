"""Kernels of nki-library in a model: the published ones where they are, and ones that refuse."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("safetensors")

from tests.llm.reference import generated, small
from tests.llm.running import PROMPT, generate, run, write

PUBLISHED = Path(os.environ.get("NKI_REF", "checkouts")) / "nki-library"
SHAPE = small("qwen3", hidden_size=256, head_dim=64, intermediate_size=512, num_hidden_layers=1)

REFUSES = '''
"""A kernel."""


def {name}(*args, **kwargs):
    """Takes nothing."""
    assert False, "sizes"
'''
COMMON = """
from enum import Enum


class QKVOutputLayout(Enum):
    BSD = 0


class NormType(Enum):
    RMS_NORM = 1


class ActFnType(Enum):
    SiLU = 0
"""


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="NKI_REF has no nki-library")
@pytest.mark.parametrize("ranks, lnc", [(1, 1), (2, 2)])
def test_the_published_ones(tmp_path: Path, ranks: int, lnc: int) -> None:
    tokens, want = generated(SHAPE, write(tmp_path, SHAPE, seed=1), PROMPT, 3)
    options = ("--ranks", ranks, "--lnc", lnc, "--dtype", "bfloat16", "--library", PUBLISHED)
    found = generate(tmp_path, *options)
    assert len(found["library_kernels"]) >= 3
    assert found["tokens"][0] == tokens[0]
    assert np.abs(found["logits"][0] - want[0]).max() < 2e-2 * np.abs(want).max()


def test_ours_where_theirs_refuse(tmp_path: Path) -> None:
    """In a process of its own: what it imports is called as the library is."""
    prompt = ",".join(map(str, PROMPT))
    tokens, _ = generated(SHAPE, write(tmp_path / "model", SHAPE), PROMPT, 3)
    core = tmp_path / "library" / "src" / "nkilib_src" / "nkilib" / "core"
    parts = {
        "qkv/qkv": "qkv",
        "attention/attention_cte": "attention_cte",
        "output_projection/output_projection_cte/output_projection_cte": "output_projection_cte",
        "output_projection/output_projection_tkg": "output_projection_tkg",
        "mlp/mlp": "mlp",
    }
    for place, name in parts.items():
        file = core / f"{place}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(REFUSES.format(name=name).lstrip())
    (core / "utils").mkdir()
    (core / "utils" / "common_types.py").write_text(COMMON)
    twice = (
        REFUSES.format(name="mlp")
        .replace('"""A kernel."""\n', "")
        .replace(
            '    """Takes nothing."""\n',
            '    """Takes nothing.\n    """\n\n    nothing.\n    """\n',
        )
    )
    (core / "mlp" / "mlp.py").write_text(twice.lstrip())
    done = run(
        "generate.py",
        tmp_path / "model",
        "--prompt",
        prompt,
        "--tokens",
        3,
        "--lnc",
        1,
        "--library",
        tmp_path / "library",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.split() == list(map(str, tokens))
    assert '"library_kernels": []' in done.stdout
