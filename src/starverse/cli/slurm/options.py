"""Reading the options of a Slurm command as getopt_long does, from one small table per command."""

from __future__ import annotations

import getopt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class BadUsage(Exception):
    """An option that the command does not know, or one without its value."""


@dataclass(frozen=True, slots=True)
class Table:
    """A command's options. ``flags`` and ``values`` map long names to their letter (``""``: none);
    ``optional`` are long names whose value, if any, follows an ``=``; ``optional_letters`` are the letters
    of some of them, with the value, if any, right behind.

    ``stops``: reading ends at the first word that is no option (``srun``); else options and other words mix.
    """

    flags: dict[str, str]
    values: dict[str, str]
    optional: frozenset[str] = frozenset()
    optional_letters: Mapping[str, str] = field(default_factory=dict)
    stops: bool = False


@dataclass(slots=True)
class Read:
    """What was read: ``values`` by long name, the last one wins; ``words`` are the rest."""

    values: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)


def read_options(words: Sequence[str], table: Table) -> Read:
    """Raises :class:`BadUsage` with getopt's own words."""
    letters = {letter: name for name, letter in (*table.flags.items(), *table.values.items()) if letter}
    short = "".join(letter + (":" if name in table.values else "") for letter, name in letters.items())
    long = [*table.flags, *(f"{name}=" for name in table.values), *table.optional]
    plain, rest = _take_optional(words, table)
    parse = getopt.getopt if table.stops else getopt.gnu_getopt
    try:
        found, others = parse(plain, short, long)
    except getopt.GetoptError as error:
        raise BadUsage(_as_slurm_says(error)) from error
    read = Read(words=list(others))
    for name, value in found:
        read.values[letters[name[1:]] if name[:2] != "--" else name[2:]] = value
    read.values.update(rest)
    return read


def _take_optional(words: Sequence[str], table: Table) -> tuple[list[str], dict[str, str]]:
    """Take out ``--name=value`` of options whose value is optional; only before the words that stop."""
    plain: list[str] = []
    taken: dict[str, str] = {}
    for index, word in enumerate(words):
        if word == "--" or (table.stops and not word.startswith("-") and not _is_value(words, index, table)):
            return [*plain, *words[index:]], taken
        if word[:1] == "-" and word[1:2] in table.optional_letters:
            taken[table.optional_letters[word[1:2]]] = word[2:] or "1"
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and equals and name in table.optional:
            taken[name] = value
        else:
            plain.append(word)
    return plain, taken


def _is_value(words: Sequence[str], index: int, table: Table) -> bool:
    """Whether the word at ``index`` is the value of the option before it."""
    before = words[index - 1] if index else ""
    if before.startswith("--"):
        return before[2:] in table.values
    return len(before) > 1 and before[0] == "-" and before[-1] in table.values.values()


def _as_slurm_says(error: getopt.GetoptError) -> str:
    option = f"--{error.opt}" if len(error.opt) > 1 else f"-{error.opt}"
    if "requires argument" in error.msg:
        return f"option '{option}' requires an argument"
    if len(error.opt) == 1:
        return f"invalid option -- '{error.opt}'"
    if "unique prefix" in error.msg:
        return f"option '{option}' is ambiguous"
    return f"unrecognized option '{option}'"
