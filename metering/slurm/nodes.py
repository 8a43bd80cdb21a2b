"""PURE: nodes with MIG slices in the output of `scontrol show nodes`, and node names in a list of Slurm."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

PARTITIONED: Final = re.compile(r"(?i)(?<![a-z])mig(?![a-z])|\dg\.\d+gb")
"""Pattern of types of generic resources that are slices of MIG by their name."""
NODE: Final = re.compile(r"(?:^|\s)NodeName=(\S+)")
GRES_OF_NODE: Final = re.compile(r"(?:^|\s)Gres=(\S+)")
MOST_NODES: Final = 100_000


def cut_nodes(shown: str) -> frozenset[str]:
    """Return the nodes whose cards MIG cuts, by the types of their generic resources.

    `shown`: the output of `scontrol show nodes`, with one line or several for each node.

    >>> sorted(cut_nodes("NodeName=a1 Gres=gpu:a100_1g.10gb:7(S:0-1) State=IDLE NodeName=b1 Gres=gpu:a100:8 State=IDLE"))
    ['a1']
    """
    bounds = [*(match.start() for match in NODE.finditer(shown)), len(shown)]
    found = set()
    for start, end in pairwise(bounds):
        name, gres = NODE.search(shown, start, end), GRES_OF_NODE.search(shown, start, end)
        if name and gres and PARTITIONED.search(gres.group(1)):
            found.add(name.group(1))
    return frozenset(found)


def nodes_of(text: str) -> list[str]:
    """Return the nodes of a list of Slurm, at most MOST_NODES of them.

    >>> nodes_of("gpu[01-03,7],login")
    ['gpu01', 'gpu02', 'gpu03', 'gpu7', 'login']
    >>> nodes_of("r[1-2]n[1-2]")
    ['r1n1', 'r1n2', 'r2n1', 'r2n2']

    Source: Slurm, scontrol.1 (show hostnames).
    """
    found: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        names = [""]
        for piece in re.split(r"(\[[^\]]*\])", part):
            ends = list(_numbers(piece[1:-1])) if piece.startswith("[") else [piece]
            if len(names) * len(ends) > MOST_NODES:
                return found
            names = [name + end for name in names for end in ends]
        found += names
    return found[:MOST_NODES]


def _numbers(ranges: str) -> Iterator[str]:
    """Yield 01, 02, 03, 7 of `01-03,7`; a part that is no range of numbers stays as it is."""
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdecimal() and last.isdecimal() and int(last) - int(first) < MOST_NODES:
            yield from (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
        else:
            yield part
