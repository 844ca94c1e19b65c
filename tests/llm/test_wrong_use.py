"""What the programs of examples/llm say of wrong use: one line, no traceback."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("safetensors")

from tests.llm.reference import small
from tests.llm.running import LLM, run, write  # noqa: F401

SHAPE = small("qwen3", num_hidden_layers=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    write(made, SHAPE)
    return made


def said(capsys: Any, *arguments: Any, program: str = "generate") -> str:
    module = __import__(program)
    assert module.main([str(a) for a in arguments]) == 2
    out, error = capsys.readouterr()
    assert (
        out == "" and len(error.strip().splitlines()) == 1 and error.startswith(f"{program}.py: ")
    )
    return str(error)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--ranks", 3], "8 heads can't be shared by 3 ranks evenly"),
        (["--prompt", "1,2", "--tokens", 400], "2 tokens of prompt and 400 more; .* 256 places"),
        (["--prompt", "1,2,3,4", "--context", 8], "at most 8 places"),
        (["--prompt", "5,300"], "token 300; the model has 0 to 299"),
        (["--prompt", "once upon a time"], "transformers|tokenizer"),
        (["--ranks", 4, "--data-parallel", 3], "3 replicas don't divide 4 ranks"),
        (["--ranks", 0], "0 ranks; at least 1"),
        (["--data-parallel", 0], "0 replicas .* at least 1"),
        (["--layers", 1], "--layers is of --make"),
        (["--make", "qwen3-8b"], "has a config.json already; without --make it is used"),
        (["--dry", "--report", "/nowhere/page.html"], "No such file .*/nowhere/page.html"),
        (["--prompt", ""], r"prompts of \[0\] tokens"),
        (["--prompt", "1", "--prompt", "2"], "2 prompts for 1 replicas"),
        (
            ["--prompt", "1,2", "--prompt", "2", "--ranks", 2, "--data-parallel", 2],
            r"\[1, 2\] tokens",
        ),
        (["--expert-parallel"], "the model has no experts"),
        (["--library", "/nowhere"], "/nowhere isn't nki-library"),
        (["--platform", "trn1"], "lnc"),
    ],
)
def test_options(folder: Path, capsys: Any, options: list[Any], message: str) -> None:
    assert re.search(message, said(capsys, folder, *options))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"architectures": ["GptOssForCausalLM"]}, "architecture GptOssForCausalLM; known: Llama"),
        ({"attention_bias": True}, "attention_bias=True isn't supported"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rotary embedding yarn; known"),
        ({"torch_dtype": "float16"}, "weights are float16; choose --dtype"),
        ({"hidden_size": None}, "config.json can't be read|hidden_size"),
    ],
)
def test_configurations(
    folder: Path, tmp_path: Path, capsys: Any, change: dict[str, Any], message: str
) -> None:
    config = {k: v for k, v in {**SHAPE, **change}.items() if v is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for file in folder.glob("*.safetensors*"):
        (tmp_path / file.name).symlink_to(file)
    assert re.search(message, said(capsys, tmp_path))


def test_a_missing_shard_and_a_missing_tensor(folder: Path, tmp_path: Path, capsys: Any) -> None:
    assert "is no checkpoint: it has no config.json" in said(capsys, tmp_path / "nothing")
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    assert "no model.safetensors and no index" in said(capsys, tmp_path)
    for file in folder.glob("*.safetensors*"):
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "shard-1.safetensors").unlink()
    assert "lacks the shard shard-1.safetensors" in said(capsys, tmp_path)
    (tmp_path / "shard-1.safetensors").symlink_to(folder / "shard-0.safetensors")
    assert "has no tensor model.embed_tokens.weight" in said(capsys, tmp_path)


def test_a_shard_in_part_and_no_safetensors(
    folder: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(
            file.read_bytes()[: 99 if "shard-1" in file.name else None]
        )
    assert re.search("shard-1.safetensors can't be read: ", said(capsys, tmp_path))
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert said(capsys, folder) == "generate.py: pip install safetensors, which reads checkpoints\n"


def test_prompts_are_looked_at_before_weights(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from checkpoint import Checkpoint

    monkeypatch.setattr(Checkpoint, "read", None)
    assert "token 300; the model has 0 to 299" in said(capsys, folder, "--prompt", "5,300")


def test_out_of_hbm(capsys: Any) -> None:
    error = said(capsys, "qwen3-32b", "--dry", "--ranks", 2, "--lnc", 2)
    assert "HBM" in error and "layers." in error


def test_training(capsys: Any) -> None:
    assert "8 heads can't" in said(capsys, "--ranks", 3, program="train")
    assert "4 heads of keys can't" in said(capsys, "--ranks", 8, program="train")
    assert "513 tokens; 1 to 512" in said(capsys, "--tokens", 513, program="train")
    assert "0 steps, at least 1" in said(capsys, "--steps", 0, program="train")
    assert "Llamas only" in said(capsys, "--shape", "qwen3-8b", "--dry", program="train")
