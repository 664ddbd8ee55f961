"""File name patterns of ``--output`` and ``--error`` (sbatch manual page, "filename pattern").

A number between ``%`` and the letter pads numbers with zeros (``%5j``, at most 10 digits). A backslash
anywhere switches all replacement off and is removed. What results stays inside ``/workspace``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from starverse.domain.sbatch.origins import BadValue

WORKSPACE = "/workspace"
DISCARD = "/dev/null"
PATTERN_CHARACTERS_MAX = 1024

_MARK = re.compile(r"%(\d*)([%AaJjNnstux])", re.ASCII)
_PAD_MAX = 10


@dataclass(frozen=True, slots=True)
class PatternContext:
    """What the marks stand for: ``job_number`` of this job or task alone (no two tasks share a file),
    ``array_number`` ``None`` outside arrays.

    ``array_index`` fills ``%a``; outside arrays it is Slurm's 4294967294. ``node`` is the first node of
    the gang, where the script runs.
    """

    job_number: int
    job_name: str
    user: str = "root"
    node: str = "node"
    array_number: int | None = None
    array_index: int | None = None


def expand_pattern(pattern: str, context: PatternContext) -> str:
    """The file name of a batch script's stream; a ``/`` inside a name or user becomes ``_``."""
    if "\\" in pattern:
        return re.sub(r"\\(.?)", r"\1", pattern, flags=re.DOTALL)
    numbers: dict[str, int] = {
        "j": context.job_number,
        "A": context.job_number if context.array_number is None else context.array_number,
        "a": 4294967294 if context.array_index is None else context.array_index,
        "n": 0,
        "t": 0,
    }
    texts = {
        "x": context.job_name.replace("/", "_"),
        "u": context.user.replace("/", "_"),
        "N": context.node.split(".", 1)[0],
        "J": str(context.job_number),
        "s": "batch",
    }

    def one(found: re.Match[str]) -> str:
        width, letter = found[1], found[2]
        if letter == "%":
            return "%"
        if letter in texts:
            return texts[letter]
        return str(numbers[letter]).zfill(min(int(width or 0), _PAD_MAX))

    return _MARK.sub(one, pattern)


def workspace_file(pattern: str, context: PatternContext, chdir: str = ".") -> str | None:
    """The file's path relative to ``/workspace``; ``None`` for ``/dev/null``.

    ``chdir`` is relative to ``/workspace`` and is where relative patterns start. Raises :class:`BadValue`
    where the result would lie outside of the workspace or name no file.
    """
    expanded = expand_pattern(pattern, context)
    if expanded == DISCARD:
        return None
    if not expanded or expanded.endswith("/") or PurePosixPath(expanded).name in {"", "..", "."}:
        raise BadValue("the name of a file, not of a folder", shown=expanded)
    inside = inside_workspace(expanded, chdir)
    if inside == ".":
        raise BadValue("the name of a file, not of a folder", shown=expanded)
    return inside


def inside_workspace(path: str, chdir: str = ".") -> str:
    """``path`` relative to ``/workspace``, ``..`` resolved. Raises :class:`BadValue` for the outside."""
    where = PurePosixPath(WORKSPACE) / chdir / path
    kept: list[str] = []
    for part in where.parts[1:]:
        if part == "..":
            if len(kept) <= 1:
                raise BadValue(f"a path inside {WORKSPACE}", shown=path)
            kept.pop()
        elif part != ".":
            kept.append(part)
    if kept[:1] != [WORKSPACE[1:]]:
        raise BadValue(f"a path inside {WORKSPACE}, which is the folder you submit from", shown=path)
    return "/".join(kept[1:]) or "."


def check_pattern(pattern: str) -> str:
    """The pattern as typed, when what it names lies inside the workspace. Raises :class:`BadValue`."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise BadValue(f"at most {PATTERN_CHARACTERS_MAX} characters")
    if not pattern:
        raise BadValue("a file name such as slurm-%j.out; leave the option out for the default")
    workspace_file(pattern, PatternContext(job_number=1, job_name="name", array_index=1))
    return pattern
