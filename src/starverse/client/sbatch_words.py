"""Splitting a command line of sbatch: which words are options, which is the script, which are its arguments.

The server knows every option and what it means; a client only has to know which options take no value, to
find the script, and which concern the command that submits: those are taken out, all others are sent as they
were typed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OWN_FLAGS: Mapping[str, str] = {
    "wait": "W",
    "parsable": "",
    "test-only": "",
    "quiet": "Q",
    "verbose": "v",
    "help": "h",
    "usage": "",
    "version": "V",
}
"""Flags for the command that submits: long name, letter."""

FLAGS = frozenset(
    (
        "requeue",
        "no-requeue",
        "hold",
        "reboot",
        "contiguous",
        "exclusive",
        "get-user-env",
        "ignore-pbs",
        "nice",
        "no-kill",
        "overcommit",
        "oversubscribe",
        "propagate",
        "resv-ports",
        "spread-job",
        "stepmgr",
        "use-min-nodes",
    )
)
"""Options for the server that never take the next word (a value, if any, only as ``--name=value``)."""

VALUES = frozenset(
    """
    account acctg-freq array batch bb bbf begin chdir checkpoint cluster-constraint clusters comment
    constraint container container-id core-spec cores-per-socket cost-max cpu-freq cpus-per-gpu
    cpus-per-task dataset deadline defer-until delay-boot dependency disk distribution error exclude
    export export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket
    gpus-per-task gres gres-flags hint image input job-name kill-on-invalid-dep licenses mail-type mail-user
    mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus net network nodefile nodelist nodes ntasks
    ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres oom-kill-step
    open-mode output partition power prefer price-max priority profile qos recipe reservation secret
    signal sockets-per-node switches tariff thread-spec threads-per-core time time-min tmp tres-bind
    tres-per-task uid wait-all-nodes wckey window
    """.split()  # noqa: SIM905 (a list of words reads better)
)
"""Options for the server that take the next word when there is no ``=``. Unknown ones take none, as for
sbatch, so that the script is found and the server names what it does not know."""

FLAG_LETTERS = frozenset("HkOs")
VALUE_LETTERS = "ABCDFGJLMNSabcdeimnopqtwx"
WRAP_SCRIPT_NAME = "wrap"

_DIRECTIVE = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
_EXPORT = re.compile(r"--export(?:=|\s+)(\"[^\"]*\"|'[^']*'|\S+)")


@dataclass(slots=True)
class Words:
    """``options`` go to the server. ``own`` are the names of :data:`OWN_FLAGS` and ``extra_flags`` seen;
    ``wrap`` the command of ``--wrap``. ``script`` ``None``: none was named."""

    options: list[str] = field(default_factory=list)
    own: set[str] = field(default_factory=set)
    own_values: dict[str, str] = field(default_factory=dict)
    wrap: str | None = None
    script: str | None = None
    arguments: list[str] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Grammar:
    """How a command reads its words.

    As sbatch does, everything after the script belongs to the script. With ``options_follow_script``
    (``starverse submit``) options may stand behind it and arguments follow ``--``. ``flags`` and ``values``
    are the command's further own long options.
    """

    options_follow_script: bool = False
    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()


def split_words(words: Sequence[str], grammar: Grammar | None = None) -> Words:
    """Sort the words of a command line; never fails (the server names what is wrong)."""
    rules = grammar or Grammar()
    found = Words()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            rest = list(words[at:])
            if found.script is None and rest:
                found.script = rest.pop(0)
            found.arguments += rest
            return found
        if not word.startswith("-") or word == "-":
            if found.script is None:
                found.script = word
                if not rules.options_follow_script:
                    found.arguments += words[at:]
                    return found
            else:
                found.stray.append(word)
        elif word.startswith("--"):
            at += _long(word, words[at : at + 1], rules, found)
        else:
            at += _short(word, words[at : at + 1], found)
    return found


def _long(word: str, following: Sequence[str], rules: Grammar, found: Words) -> int:
    """Take one long option; how many of the following words belong to it."""
    name, equals, value = word[2:].partition("=")
    own = _own_name(name, rules)
    if own is not None and not equals:
        found.own.add(own)
        return 0
    if name == WRAP_SCRIPT_NAME or name in rules.values:
        used = 0
        if not equals:
            value, used = (following[0], 1) if following else ("", 0)
        if name == WRAP_SCRIPT_NAME:
            found.wrap = value
        else:
            found.own_values[name] = value
        return used
    found.options.append(word)
    if equals or not _takes_next(name):
        return 0
    found.options += following
    return len(following)


def _takes_next(name: str) -> bool:
    """Whether a long option, or a beginning that fits one kind only, takes the next word."""
    if name in VALUES or name in FLAGS:
        return name in VALUES
    return any(value.startswith(name) for value in VALUES) and not any(
        flag.startswith(name) for flag in FLAGS
    )


def _own_name(name: str, rules: Grammar) -> str | None:
    names = (*OWN_FLAGS, *rules.flags)
    if name in names:
        return name
    longer = [other for other in names if len(name) > 3 and other.startswith(name)]
    return longer[0] if len(longer) == 1 else None


def _short(word: str, following: Sequence[str], found: Words) -> int:
    """Take a group of letters (``-WJname``); how many of the following words belong to it."""
    letters_own = {letter: name for name, letter in OWN_FLAGS.items() if letter}
    kept = ""
    for index, letter in enumerate(word[1:], start=1):
        if letter in letters_own:
            found.own.add(letters_own[letter])
        elif letter in FLAG_LETTERS:
            kept += letter
        else:
            rest = word[index:]
            found.options.append(f"-{kept}{rest}")
            takes_next = len(rest) == 1 and letter in VALUE_LETTERS
            found.options += following if takes_next else ()
            return len(following) if takes_next else 0
    if kept:
        found.options.append(f"-{kept}")
    return 0


def wrapped_script(command: str) -> str:
    """The script that sbatch makes of ``--wrap`` (sbatch manual page)."""
    return f"#!/bin/sh\n# This script was created by sbatch by means of --wrap.\n\n{command}\n"


def environment_to_send(script: str, options: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's ``SBATCH_*`` variables, and the values of variables that ``--export`` names.

    ``--export`` is looked for in the options, in ``SBATCH_EXPORT`` and in the script's directives. Nothing
    else of the caller's environment leaves the machine.
    """
    sent = {name: value for name, value in environ.items() if name.startswith("SBATCH_")}
    lists = [value for value in (environ.get("SBATCH_EXPORT"),) if value]
    for index, word in enumerate(options):
        if word.startswith("--export="):
            lists.append(word.removeprefix("--export="))
        elif word == "--export" and index + 1 < len(options):
            lists.append(options[index + 1])
    for directive in _DIRECTIVE.findall(script):
        lists += [value.strip("\"'") for value in _EXPORT.findall(directive)]
    for name in (item.strip() for listed in lists for item in listed.split(",")):
        if "=" not in name and name not in ("ALL", "NONE", "NIL", "") and name in environ:
            sent[name] = environ[name]
    return sent
