"""`nki-dist disasm`: a compiled kernel as text.

Show the programs of a compiled kernel: for each core its tensors (memory, shape, dtype, address,
first and last instruction that uses them) and one line per instruction (number, engine, opcode,
operands as name=tensor[pattern]:dtype, attributes that aren't the default, kernel line).

With --linked, show instead what running it does, as linked for this version: the operations of
every kind of instruction once (function and arguments, places as space+offset[elements:stride, ...]
dtype), and for each instruction its number, title, kind and where the kind's operands begin.
Passes that NKI_DIST_LINK_WITHOUT names are left out.

FILE is what kernel.compile(...).save(FILE) wrote. It is checked while it is read, and
nothing in it is executed.

[options]

examples:
  nki-dist disasm add.nki-dist
  nki-dist disasm add.nki-dist --core 1 --source
  nki-dist disasm add.nki-dist --linked
"""

from __future__ import annotations

import argparse
from typing import Any

from nki_dist import arch
from nki_dist.cli.shared.command import add_command, refused
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.disasm import listing
from nki_dist.linking.link import link
from nki_dist.linking.passes import left_out
from nki_dist.linking.printing import listing as linked_listing


def register(subparsers: Any) -> None:
    parser = add_command(subparsers, "disasm", "show a compiled kernel as text", __doc__, run)
    parser.add_argument("file", metavar="FILE", help="a compiled kernel")
    parser.add_argument("--core", type=int, metavar="N", help="only the program of core N")
    parser.add_argument(
        "--source", action="store_true", help="show the kernel's lines, where its file still is"
    )
    parser.add_argument(
        "--constants", action="store_true", help="show the first bytes of constant tensors"
    )
    parser.add_argument(
        "--linked", action="store_true", help="show the operations that it was linked to"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the listings.

    Raises:
        LaunchError: the file can't be read, or has no such core.
        ProgramFormatError: it is no compiled kernel.
    """
    compiled = Compiled.load(arguments.file)
    programs = compiled.as_run.programs if arguments.linked else compiled.programs
    if arguments.core is not None:
        if not 0 <= arguments.core < len(programs):
            raise refused(
                f"--core {arguments.core}; allowed: 0 to {len(programs) - 1}",
                got=arguments.core,
                most=len(programs) - 1,
            )
        programs = [programs[arguments.core]]
    for number, program in enumerate(programs):
        if number:
            print()
        if arguments.linked:
            lines = linked_listing(link(program, arch.get(program.platform), left_out()))
        else:
            lines = listing(program, source=arguments.source, constants=arguments.constants)
        for line in lines:
            print(line)
    return 0
