"""Topologies as text: a grid of chips per instance, each with its number and its ranks.

Doesn't draw switches as boxes: a switched instance is a list of chips, and the first lines say what
connects them. Ranks on a chip without any ranks are shown as a dash.
"""

from __future__ import annotations

from nki_dist.topology.fabric import Switched, Torus
from nki_dist.topology.identity import ChipId, InstanceId
from nki_dist.topology.topology import Topology

ACROSS = 4  # chips in a line where the fabric has no columns


def draw(topology: Topology) -> str:
    """The whole drawing."""
    lines = _head(topology)
    for number in range(topology.instances):
        lines += ["", *_instance(topology, InstanceId(number))]
    return "\n".join(lines)


def _head(t: Topology) -> list[str]:
    arch = t.arch
    lines = [
        f"{arch.instance}, LNC={t.lnc}: {_count(t.ranks, 'rank')} of {_count(t.lnc, 'core')}, "
        f"{t.ranks_per_chip} to a chip, on {_count(t.chips, 'chip')} of "
        f"{_count(t.instances, 'instance')}",
        f"chips: {t.fabric.describe()}; "
        + ", ".join(f"{kind} link {gbps:g} GB/s" for kind, gbps in _links(t).items())
        + " each way",
    ]
    if arch.instances_per_ultraserver > 1 and isinstance(t.fabric, Torus):
        lines.append("the same chip of successive instances: ring (z)")
    if isinstance(t.fabric, Switched):
        lines.append("the same chip of the same server in the other rack: direct link")
    if t.instances > arch.instances_per_ultraserver:
        between = f"EFA, {arch.efa_chip_gbps:g} GB/s per chip" if arch.efa_chip_gbps else "nothing"
        lines.append(f"between separate instances or UltraServers: {between}")
    return [*lines, *_first_chip(t)]


def _links(t: Topology) -> dict[str, float]:
    """Bandwidth of each kind of link this system has; z exists in an UltraServer only."""
    several = t.arch.instances_per_ultraserver > 1
    return {kind: gbps for kind, gbps in t.arch.link_gbps.items() if several or kind != "z"}


def _first_chip(t: Topology) -> list[str]:
    """Which rank, cores and HBM stack belong together, on one chip; others are alike."""
    lines = ["on chip 0:"]
    for rank in t.ranks_of(0):
        place = t.place(rank)
        cores = " ".join(str(c.number) for c in place.cores)
        lines.append(f"  {rank}: cores {cores}, HBM stack {place.stack.number}")
    return lines


def _instance(t: Topology, instance: InstanceId) -> list[str]:
    count = t.arch.chips_per_instance
    cells = [_cell(t, ChipId(instance, n)) for n in range(count)]
    width = max(len(text) for cell in cells for text in cell)
    title = str(instance)
    if t.arch.instances_per_ultraserver > 1:
        server, within = divmod(instance.number, t.arch.instances_per_ultraserver)
        title += f" (UltraServer {server}, {_within(t, within)})"
    if isinstance(t.fabric, Torus):
        return [title, *_grid(cells, t.fabric.columns, width)]
    rows = [cells[n : n + ACROSS] for n in range(0, count, ACROSS)]
    return [title] + [
        "  " + "  ".join(f"{' '.join(c):<{2 * width}}" for c in r).rstrip() for r in rows
    ]


def _within(t: Topology, instance: int) -> str:
    if isinstance(t.fabric, Switched):
        rack, server = divmod(instance, t.fabric.servers)
        return f"rack {rack}, server {server}"
    return f"z {instance}"


def _cell(t: Topology, chip: ChipId) -> tuple[str, str]:
    ranks = [r.number for r in t.ranks_of(chip)]
    if not ranks:
        return f"chip {chip.number}", "-"
    shown = f"{ranks[0]}" if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"
    return f"chip {chip.number}", shown


def _grid(cells: list[tuple[str, str]], columns: int, width: int) -> list[str]:
    """Cells with their links; ends of a row or column are linked to its other end."""
    rows = [cells[n : n + columns] for n in range(0, len(cells), columns)]
    bars = "   " + "   ".join("|".center(width) for _ in range(columns))
    lines = [bars.rstrip()]
    for row in rows:
        lines.append("-- " + " - ".join(name.center(width) for name, _ in row) + " --")
        lines.append(("   " + "   ".join(ranks.center(width) for _, ranks in row)).rstrip())
        lines.append(bars.rstrip())
    return lines


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")
