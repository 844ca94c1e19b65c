"""Generate text with a Hugging Face checkpoint on simulated NeuronCores.

    python examples/llm/generate.py CHECKPOINT --prompt 5,9,2 --tokens 8 --ranks 4 --lnc 2

docs/models.md says what happens where.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import shapes
from checkpoint import Checkpoint
from config import Config, UsageError
from library import Library
from model import Model, check_prompts
from weights import Layout

import nki_dist as nki

DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("checkpoint", type=Path, help="folder with config.json and safetensors")
    p.add_argument("--make", metavar="SHAPE", help="write it first, with random weights of a shape")
    p.add_argument("--layers", type=int, help="of --make, or of a shape that --dry is given")
    p.add_argument("--prompt", action="append", help="ids (5,9,2) or text; one for each replica")
    p.add_argument("--tokens", type=int, default=8, help="how many to generate")
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--lnc", type=int, default=2, choices=(1, 2), help="cores of a rank")
    p.add_argument("--host", default="inprocess", choices=("inprocess", "ray"))
    p.add_argument("--platform", default="trn2")
    p.add_argument("--dtype", choices=DTYPES, help="of weights and activations; the checkpoint's")
    p.add_argument("--expert-parallel", action="store_true", help="ranks have whole experts")
    p.add_argument("--sequence-parallel", action="store_true", help="ranks share a prompt's tokens")
    p.add_argument("--data-parallel", type=int, default=1, metavar="D", help="replicas")
    p.add_argument("--context", type=int, help="places of the cache; as many as are needed")
    p.add_argument("--library", type=Path, metavar="NKI_LIBRARY", help="its kernels where they fit")
    p.add_argument(
        "--dry", action="store_true", help="no weights, no values: does it fit, how long"
    )
    p.add_argument("--json", action="store_true", help="print what was found out as JSON, at last")
    p.add_argument("--report", type=Path, metavar="FILE", help="write a page about the session")
    p.add_argument("--profile", action="store_true", help="print the time of each kernel")
    p.add_argument("--retries", type=int, default=0, help="of a launch that lost a process")
    return p


def main(arguments: list[str] | None = None) -> int:
    asked = parser().parse_args(arguments)
    try:
        generate(asked)
    except (UsageError, nki.errors.NkiError, OSError) as error:
        print(f"generate.py: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    return 0


def generate(asked: argparse.Namespace) -> None:
    """Load, generate, and say what was found out.

    Raises:
        UsageError: as of `Config`, `Checkpoint`, `Layout` and `Model`.
        NkiError: it doesn't fit, or a core was lost.
    """
    by_name = asked.dry and str(asked.checkpoint) in shapes.SHAPES
    if asked.layers is not None and not (asked.make or by_name):
        raise UsageError("--layers is of --make, or of a shape's name with --dry")
    if asked.make:
        shapes.write(asked.checkpoint, shapes.known(asked.make, asked.layers))
    if by_name:
        config = Config.of(shapes.known(str(asked.checkpoint), asked.layers))
    else:
        config = Config.read(asked.checkpoint)
    layout = Layout.of_world(
        asked.ranks,
        asked.lnc,
        asked.data_parallel,
        asked.expert_parallel,
        asked.sequence_parallel,
    )
    layout.check(config)
    text = Text(asked.checkpoint)
    prompts = [text.ids(p) for p in asked.prompt or ["0"]]
    prompts += [prompts[-1]] * (asked.data_parallel - len(prompts))
    if len(prompts) > asked.data_parallel:
        raise UsageError(f"{len(prompts)} prompts for {asked.data_parallel} replicas")
    check_prompts(config, prompts)  # before gigabytes are loaded
    places = len(prompts[0]) + asked.tokens
    context = asked.context or places
    if max(places, context) > config.longest or places > context or asked.tokens < 1:
        raise UsageError(
            f"{len(prompts[0])} tokens of prompt and {asked.tokens} more; at least one, and at "
            f"most {min(context, config.longest)} places"
        )
    source = None if asked.dry else Checkpoint(asked.checkpoint)
    dtype = DTYPES.get(asked.dtype or config.dtype)
    if dtype is None:
        raise UsageError(f"weights are {config.dtype}; choose --dtype {' or '.join(DTYPES)}")
    world = nki.World(
        asked.ranks,
        asked.lnc,
        asked.platform,
        asked.host,
        dry=asked.dry,
        retries=asked.retries,
    )
    with world:
        library = Library(asked.library) if asked.library else None
        model = Model(world, config, layout, source, dtype, context, Bar(), library)
        found = tokens_of(model, prompts, asked, text)
        say(asked, model, *found)


def tokens_of(model: Model, prompts: list, asked: Any, text: Text) -> tuple:
    """The tokens, their logits, and the sessions of the prompt and of what follows."""
    tokens, logits = [], []
    count = len(prompts[0])

    def note(step: Any) -> None:
        if not asked.dry:
            tokens.append(model.tokens(step))
            logits.append(model.logits(step)[0])
            print(text.of(tokens[-1][0]), end="", flush=True, file=sys.stderr)

    with model.world.session() as first:
        step = model.prompt(prompts)
        note(step)
    with model.world.session() as rest:
        for n in range(asked.tokens - 1):
            step = model.token(step, count + n)
            note(step)
    if tokens:
        print(file=sys.stderr)
    return tokens, logits, first, rest


def say(asked: Any, model: Model, tokens: list, logits: list, first: Any, rest: Any) -> None:
    """Print what was found out, and write what was asked for."""
    each = max(1, asked.tokens - 1)
    session = rest if asked.tokens > 1 else first
    found = {
        "tokens": [t[0] for t in tokens],
        "logits_file": None,
        "launches": model.launches,
        "us_to_first_token": first.device_us,
        "us_per_token": session.device_us / each,
        "low_us": session.low_us / each,
        "high_us": session.high_us / each,
        "hbm_bytes": model.bytes,
        "library_kernels": sorted(model.library_kernels),
    }
    total = session.total()
    found.update(mfu=total.mfu, mbu=total.mbu, collectives=total.collectives)
    if len(tokens and tokens[0]) > 1:
        found["replicas"] = [list(of) for of in zip(*tokens)]
    if logits and asked.json:
        with tempfile.NamedTemporaryFile(suffix=".npy", delete=False) as file:
            np.save(file, np.stack(logits))
            found["logits_file"] = file.name
    if asked.report:
        session.write_report(asked.report)
    if asked.profile:
        print(first, rest if asked.tokens > 1 else "", sep="\n")
    if asked.json:
        print(json.dumps(found))
        return
    print(
        f"{found['us_per_token']:,.0f} us a token, simulated ({found['low_us']:,.0f} to "
        f"{found['high_us']:,.0f}); {found['us_to_first_token']:,.0f} us to the first; "
        f"{model.bytes / 1e9:,.2f} GB of each rank's HBM"
    )


class Text:
    """Ids and text; text needs the checkpoint's tokenizer, and transformers."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._tokenizer = folder, None

    def ids(self, prompt: str) -> list[int]:
        words = prompt.replace(",", " ").split()
        if all(w.isdigit() for w in words):
            return [int(w) for w in words]
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise UsageError("a prompt of text needs transformers; ids are 5,9,2") from None
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(self._folder, local_files_only=True)
        except Exception as error:
            raise UsageError(f"{self._folder} has no tokenizer: {error}") from None
        return list(self._tokenizer(prompt)["input_ids"])

    def of(self, token: int) -> str:
        return f"{token} " if self._tokenizer is None else self._tokenizer.decode([token])


class Bar:
    """A progress bar on a terminal, while weights go into HBM."""

    def __init__(self) -> None:
        self._shown = 0.0

    def __call__(self, done: int, all_: int) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and (now - self._shown > 0.1 or done >= all_):
            self._shown, share = now, min(done / all_, 1)
            bar = "#" * int(40 * share)
            end = "\n" if share == 1 else ""
            print(f"\r{bar:<40} {done / 1e9:.2f} GB a rank", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
