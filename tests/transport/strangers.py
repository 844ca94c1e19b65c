"""Another user of the machine: floods every socket of ours that can be seen, and takes names.

    python strangers.py FOLDER PART...

Those whose names have one of these parts, and other programs' not. Until its input ends; prints
"at it" when all have been tried once, and at the end how many datagrams went to sockets of ours,
how many names it took, and how many datagrams of ours came there.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from contextlib import suppress


def names(parts: list[str]) -> list[str]:
    """Of sockets, as /proc/net/unix has them."""
    with open("/proc/net/unix") as file:
        found = [line.split()[7] for line in file if len(line.split()) == 8]
    return sorted({name for name in found if any(part in name for part in parts)})


def main(folder: str, parts: list[str]) -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    taken, sent, told = {}, 0, False
    while True:
        for name in names(parts):
            where = "\0" + name[1:] if name[0] == "@" else f"{folder}/{os.path.basename(name)}"
            if where in taken:
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end, suppress(OSError):
                while end.sendto(b"flood", socket.MSG_DONTWAIT, where):
                    sent += 1
            for number in range(8):  # names that come next
                squatted = f"{where}-{number}"
                if squatted not in taken:
                    end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                    with suppress(OSError):
                        end.bind(squatted)
                        taken[squatted] = end
        if not told:
            print("at it", flush=True)
            told = True
        if select.select([sys.stdin], [], [], 0.002)[0]:
            break
    heard = 0
    for end in taken.values():
        with suppress(OSError):
            while end.recv(1 << 16, socket.MSG_DONTWAIT):
                heard += 1
    print(sent, len(taken), heard)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
