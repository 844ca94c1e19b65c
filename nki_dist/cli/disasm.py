"""`nki-dist disasm`: a compiled kernel as text."""

from __future__ import annotations

import argparse
from typing import Any, Final

from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.disasm import listing
from nki_dist.errors import LaunchError

_DESCRIPTION: Final = """\
Show the programs of a compiled kernel: for each core its tensors (memory, shape, dtype, address,
first and last instruction that uses them) and one line per instruction (number, engine, opcode,
operands as name=tensor[pattern]:dtype, attributes that aren't the default, kernel line).

FILE is what kernel.compile(...).save(FILE) wrote. It is checked while it is read, and
nothing in it is executed."""

_EPILOG: Final = """\
examples:
  nki-dist disasm add.nki-dist
  nki-dist disasm add.nki-dist --core 1 --source"""


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "disasm",
        help="show a compiled kernel as text",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="a compiled kernel")
    parser.add_argument("--core", type=int, metavar="N", help="only the program of core N")
    parser.add_argument(
        "--source", action="store_true", help="show the kernel's lines, where its file still is"
    )
    parser.add_argument(
        "--constants", action="store_true", help="show the first bytes of constant tensors"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the listings.

    Raises:
        LaunchError: the file can't be read, or has no such core.
        ProgramFormatError: it is no compiled kernel.
    """
    compiled = Compiled.load(arguments.file)
    programs = compiled.programs
    if arguments.core is not None:
        if not 0 <= arguments.core < len(programs):
            raise LaunchError(
                f"--core {arguments.core}; allowed: 0 to {len(programs) - 1}",
                code="command-option",
                numbers={"got": arguments.core, "most": len(programs) - 1},
            )
        programs = [programs[arguments.core]]
    for number, program in enumerate(programs):
        if number:
            print()
        for line in listing(program, source=arguments.source, constants=arguments.constants):
            print(line)
    return 0
