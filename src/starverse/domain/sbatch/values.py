"""Reads the values of single options: text in, a typed value or :class:`BadValue` out.

Sources: sbatch manual page (22.05 to 24.05) for Slurm's own options, interfaces.md for ours.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from starverse.domain.money import Money
from starverse.domain.sbatch.origins import BadValue
from starverse.domain.sbatch.patterns import inside_workspace
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.specs import (
    ArraySpec,
    Dependencies,
    Dependency,
    DependencyKind,
    DiskMount,
    Network,
    OpenMode,
    SignalSpec,
)

ARRAY_INDEX_MAX = 999_999
ARRAY_TASKS_MAX = 10_000
COUNT_MAX = 1_000_000
FABRICS = ("ib", "roce", "eth")
NAME_CHARACTERS_MAX = 256

_ARRAY_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_ARRAY_EXPECTED = "indices such as 0-15, 1,3,5-7 or 0-15:4, with %4 at the end to run at most 4 at once"
_JOB = re.compile(r"(\d{1,10})(?:_(\d{1,7}|\*))?(?:\+(\d{1,7}))?", re.ASCII)
_DEPENDENCY_EXPECTED = (
    "after:JOB[+MINUTES], afterok:JOB, afternotok:JOB, afterany:JOB or singleton, joined by , or by ?"
)
_SIZE = re.compile(r"(\d{1,15})([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_SIZE_UNITS = {"K": 1024, "": 1024**2, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_SIGNAL = re.compile(r"(?:([A-Za-z]+):)?([A-Za-z0-9+]+)(?:@(\d{1,9}))?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(?:@[A-Za-z0-9][A-Za-z0-9._-]{0,127})?", re.ASCII)

SIGNAL_NAMES = {member.value: member.name.removeprefix("SIG") for member in signal.Signals}
"""Number to name without ``SIG``, as on the machine that runs this (Linux)."""


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not 1 <= int(text) <= COUNT_MAX:
        raise BadValue(f"a whole number from 1 to {COUNT_MAX}")
    return int(text)


def plain_text(text: str) -> str:
    """One line of free text."""
    if not text.isprintable():
        raise BadValue("one line of printable text")
    if len(text) > NAME_CHARACTERS_MAX:
        raise BadValue(f"at most {NAME_CHARACTERS_MAX} characters")
    return text


def job_name(text: str) -> str:
    if not text.strip():
        raise BadValue("a name; leave the option out for the script's own name")
    return plain_text(text)


@dataclass(frozen=True, slots=True)
class NodeCount:
    """``--nodes``: ``most`` is larger than ``least`` where a range was given."""

    least: int
    most: int


def node_count(text: str) -> NodeCount:
    found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text, re.ASCII)
    if found is None:
        raise BadValue("a number of nodes such as 2, or a range such as 2-4")
    least = count(found[1])
    most = count(found[2]) if found[2] else least
    if most < least:
        raise BadValue("a range that goes up, such as 2-4")
    return NodeCount(least, most)


def memory_bytes(text: str) -> int:
    """A size in bytes from ``4096`` (MiB), ``4G``, ``500M``."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise BadValue("a size such as 4096 (MiB), 4G or 500M")
    size = int(found[1]) * _SIZE_UNITS[found[2].upper()]
    if size == 0:
        raise BadValue("a size above zero: a share of the node is rented, never all its memory at once")
    if size > 2**50:
        raise BadValue("at most 1024T")
    return size


def array(text: str) -> ArraySpec:
    body, mark, limit = text.partition("%")
    running_max = count(limit) if mark else None
    indices: set[int] = set()
    for part in body.split(","):
        found = _ARRAY_PART.fullmatch(part)
        if found is None:
            raise BadValue(_ARRAY_EXPECTED)
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if last < first:
            raise BadValue(f"a range that goes up, such as {last}-{first}")
        if step < 1:
            raise BadValue("a step of at least 1, such as 0-15:4")
        if last > ARRAY_INDEX_MAX:
            raise BadValue(f"indices up to {ARRAY_INDEX_MAX}")
        if (last - first) // step >= ARRAY_TASKS_MAX:
            raise BadValue(f"at most {ARRAY_TASKS_MAX} tasks")
        indices.update(range(first, last + 1, step))
        if len(indices) > ARRAY_TASKS_MAX:
            raise BadValue(f"at most {ARRAY_TASKS_MAX} tasks")
    return ArraySpec(tuple(sorted(indices)), running_max)


def dependencies(text: str) -> Dependencies:
    any_is_enough = "?" in text
    if any_is_enough and "," in text:
        raise BadValue("either , (all must hold) or ? (any is enough), not both")
    conditions: list[Dependency] = []
    for part in text.split("?" if any_is_enough else ","):
        conditions += _one_dependency(part.strip())
    return Dependencies(tuple(dict.fromkeys(conditions)), any_is_enough)


def _one_dependency(part: str) -> list[Dependency]:
    kind_text, _, jobs = part.partition(":")
    try:
        kind = DependencyKind(kind_text.lower())
    except ValueError as error:
        raise BadValue(_DEPENDENCY_EXPECTED) from error
    if kind is DependencyKind.SINGLETON:
        if jobs:
            raise BadValue("singleton without a job number")
        return [Dependency(kind)]
    found = [_JOB.fullmatch(job) for job in jobs.split(":")]
    conditions: list[Dependency] = []
    for job in found:
        if job is None:
            raise BadValue(_DEPENDENCY_EXPECTED)
        if job[3] and kind is not DependencyKind.AFTER:
            raise BadValue("+MINUTES only after `after:JOB`")
        index = None if job[2] in (None, "*") else int(job[2])
        conditions.append(Dependency(kind, int(job[1]), index, int(job[3] or 0)))
    return conditions


def signal_spec(text: str) -> SignalSpec:
    found = _SIGNAL.fullmatch(text)
    if found is None:
        raise BadValue("[B:]SIGNAL[@SECONDS], for instance B:USR1@120")
    flags = (found[1] or "").upper()
    if flags.strip("B"):
        raise BadValue("B: or nothing before the signal (R: belongs to Slurm's reservations)")
    seconds = int(found[3]) if found[3] else 60
    if seconds > 65_535:
        raise BadValue("at most 65535 seconds before the end")
    return SignalSpec(signal_name(found[2]), seconds, to_batch_shell=bool(flags))


def signal_name(text: str) -> str:
    """``USR1`` from ``USR1``, ``sigusr1`` or ``10``. Raises :class:`BadValue`."""
    number = int(text) if re.fullmatch(r"\d{1,3}", text, re.ASCII) else None
    name = text.upper().removeprefix("SIG") if number is None else SIGNAL_NAMES.get(number, "")
    if name not in SIGNAL_NAMES.values():
        raise BadValue("a signal such as USR1, TERM or 10")
    return name


def open_mode(text: str) -> OpenMode:
    """Slurm compares the first letter: ``a`` or ``t``."""
    for mode in OpenMode:
        if text and mode.value.startswith(text.lower()):
            return mode
    raise BadValue("append or truncate")


SUBMITTABLE = (Tariff.ON_DEMAND, Tariff.SPOT)


def tariff(text: str) -> Tariff:
    """One of those that a job can run on in this version."""
    name = text.lower().replace("-", "_")
    if name in SUBMITTABLE:
        return Tariff(name)
    expected = " or ".join(SUBMITTABLE)
    if name in set(Tariff):
        raise BadValue(f"{expected} for a job in this version")
    raise BadValue(expected)


def positive_money(text: str) -> Money:
    try:
        amount = Money.parse(text)
    except ValueError as error:
        raise BadValue("an amount of yuan such as 1.66 (at most 6 places)") from error
    if amount.micro <= 0:
        raise BadValue("an amount of yuan above zero")
    return amount


def slug(text: str) -> str:
    if _SLUG.fullmatch(text) is None:
        raise BadValue("a name of letters, digits, '.', '_' and '-'")
    return text


def dataset(text: str) -> str:
    if _DATASET.fullmatch(text) is None:
        raise BadValue("the name of a dataset such as digits, or NAME@VERSION")
    return text


def disk(text: str) -> DiskMount:
    """``NAME``, ``NAME:/data/PATH``, either with ``:ro`` behind it; the name stands for the disk's id."""
    name, *rest = text.removesuffix(":ro").split(":")
    target = rest[0] if rest else ""
    if not name or len(rest) > 1 or (rest and not target.startswith("/")) or not text.isprintable():
        raise BadValue("a disk of `starverse disk ls`: NAME, NAME:/data/PATH, or either with ':ro' behind it")
    return DiskMount(name, target, text.endswith(":ro"))


def image(text: str) -> str:
    if _SLUG.fullmatch(text) is None:
        raise BadValue("the name of an image of `starverse image ls`")
    return text


def secret(text: str) -> str:
    if _SECRET.fullmatch(text) is None:
        raise BadValue("the name of a secret of `starverse secret ls`")
    return text


def workspace_folder(text: str) -> str:
    if not text or not text.isprintable():
        raise BadValue("a folder inside /workspace")
    return inside_workspace(text)


def checkpoint_folder(text: str) -> str:
    folder = workspace_folder(text)
    if folder == ".":
        raise BadValue("a folder below /workspace that holds only checkpoints")
    return folder


def network(text: str) -> Network:
    try:
        return Network(text.lower())
    except ValueError as error:
        raise BadValue("none (the default), internet or host") from error


def only_dev_null(text: str) -> str:
    if text.lower() not in {"/dev/null", "none"}:
        raise BadValue("/dev/null: a job reads nothing from its standard input; read a file in the script")
    return "/dev/null"


@dataclass(frozen=True, slots=True)
class Export:
    """``--export``: the variables to set; what was asked for and is not done, in words."""

    variables: tuple[tuple[str, str], ...] = ()
    notices: tuple[str, ...] = ()


def export(text: str, environment: Mapping[str, str]) -> Export:
    """``NONE``, ``ALL`` (not taken over, said so), ``NAME`` (the caller's value) and ``NAME=VALUE``."""
    variables: dict[str, str] = {}
    notices: list[str] = []
    for token in _export_tokens(text):
        name, equals, value = token.partition("=")
        if not equals and name.upper() in {"ALL", "NONE", "NIL"}:
            if name.upper() == "ALL":
                notices.append("--export=ALL: the caller's environment is not taken over; name variables")
            continue
        if _VARIABLE.fullmatch(name) is None:
            raise BadValue("NONE, NAME or NAME=VALUE, separated by commas; quote a value with commas")
        if name.startswith(("SLURM_", "STARVERSE_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")):
            notices.append(f"--export: {name} is set by the platform; yours is not taken over")
        elif equals:
            variables[name] = value
        elif name in environment:
            variables[name] = environment[name]
        else:
            notices.append(f"--export: {name} is not set where you submit from, so it is not set in the job")
    return Export(tuple(variables.items()), tuple(notices))


def _export_tokens(text: str) -> list[str]:
    """Split at commas outside of quotes; quotes are taken off, as a shell does."""
    tokens, current, quote = [], "", ""
    for character in text:
        if quote:
            if character == quote:
                quote = ""
            else:
                current += character
        elif character in "\"'":
            quote = character
        elif character == ",":
            tokens.append(current)
            current = ""
        else:
            current += character
    if quote:
        raise BadValue(f"a closing {quote}")
    return [token for token in [*tokens, current] if token]
