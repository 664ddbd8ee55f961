"""Slurm's host list expressions: ``gpu[001-004,007]`` and back."""

from __future__ import annotations

import re
from collections.abc import Iterable

from starverse.domain.sbatch.origins import BadValue

HOSTS_MAX = 4096

_EXPECTED = "node names such as gpu001,gpu[003-005,007]"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def expand_hosts(text: str) -> tuple[str, ...]:
    """Every name of an expression once, in the order written. Raises :class:`BadValue`."""
    names: dict[str, None] = {}
    for part in _top_level_parts(text):
        for name in _expand_one(part):
            if _NAME.fullmatch(name) is None:
                raise BadValue(_EXPECTED)
            names[name] = None
            if len(names) > HOSTS_MAX:
                raise BadValue(f"at most {HOSTS_MAX} nodes")
    if not names:
        raise BadValue(_EXPECTED)
    return tuple(names)


def fold_hosts(names: Iterable[str]) -> str:
    """The shortest usual writing, as Slurm prints it: ``gpu[001-002,004],head``; ``""`` for none."""
    groups: dict[tuple[str, int], list[int]] = {}
    order: list[str | tuple[str, int]] = []
    for name in dict.fromkeys(names):
        found = re.fullmatch(r"(.*?)(\d{1,9})", name, re.ASCII)
        if found is None:
            order.append(name)
            continue
        key = (found[1], len(found[2]))
        if key not in groups:
            groups[key] = []
            order.append(key)
        groups[key].append(int(found[2]))
    return ",".join(item if isinstance(item, str) else _fold_group(*item, groups[item]) for item in order)


def host_order(name: str) -> tuple[str, int, str]:
    """The order of nodes by name and number, as Slurm numbers the nodes of a job."""
    found = re.fullmatch(r"(.*?)(\d{1,9})", name, re.ASCII)
    return (name, -1, name) if found is None else (found[1], int(found[2]), name)


def _fold_group(prefix: str, width: int, numbers: list[int]) -> str:
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    inner = ",".join(f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in runs)
    return f"{prefix}[{inner}]" if len(numbers) > 1 else f"{prefix}{inner}"


def _top_level_parts(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in text:
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
            continue
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth not in (0, 1):
            raise BadValue(_EXPECTED)
        current += character
    if depth:
        raise BadValue(_EXPECTED)
    return [part.strip() for part in [*parts, current]]


def _expand_one(part: str) -> list[str]:
    pieces = re.split(r"\[([^\]]*)\]", part)
    names = [pieces[0]]
    for inner, after in zip(pieces[1::2], pieces[2::2], strict=True):
        numbers = _numbers(inner)
        if len(names) * len(numbers) > HOSTS_MAX:
            raise BadValue(f"at most {HOSTS_MAX} nodes")
        names = [f"{name}{number}{after}" for name in names for number in numbers]
    return names


def _numbers(inner: str) -> list[str]:
    numbers: list[str] = []
    for piece in inner.split(","):
        found = _RANGE.fullmatch(piece.strip())
        if found is None:
            raise BadValue(_EXPECTED)
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise BadValue(f"a range that goes up, such as [{found[2]}-{found[1]}]")
        if last - first >= HOSTS_MAX:
            raise BadValue(f"at most {HOSTS_MAX} nodes")
        numbers += [f"{number:0{len(found[1])}d}" for number in range(first, last + 1)]
    return numbers
