"""The command line of scancel (manual page of Slurm 22.05): which jobs, which signal. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from starverse.cli.slurm.job_states import COMPACT

ARRAY_TASKS_MAX = 10_000

_JOB = re.compile(r"(\d{1,10})(?:_(?:(\d{1,7})|\[([\d,:\-]+)(?:%\d+)?\]))?", re.ASCII)
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?", re.ASCII)
_FLAGS = {
    "batch": "b", "full": "f", "hurry": "H", "interactive": "i", "quiet": "Q", "verbose": "v",
    "help": "", "usage": "", "version": "V", "me": "",
}  # fmt: skip
_VALUES = {
    "account": "A", "name": "n", "partition": "p", "qos": "q", "reservation": "R", "signal": "s",
    "state": "t", "user": "u", "nodelist": "w", "wckey": "", "clusters": "M", "sibling": "", "jobname": "",
}  # fmt: skip
_BY_LETTER = {letter: name for name, letter in {**_FLAGS, **_VALUES}.items() if letter}
_STATES = ("PENDING", "RUNNING", "SUSPENDED")


@dataclass(frozen=True, slots=True)
class JobChoice:
    """A job, or tasks of an array; ``indices`` ``None``: all of it. ``typed``: for messages."""

    number: int
    indices: tuple[int, ...] | None = None
    typed: str = ""

    @property
    def numbers(self) -> tuple[str, ...]:
        """Each as our API names it: ``123`` or ``123_4``."""
        if self.indices is None:
            return (str(self.number),)
        return tuple(f"{self.number}_{index}" for index in self.indices)


@dataclass(frozen=True, slots=True)
class ScancelRequest:
    """What to cancel. Filters are ``None`` when not given; ``signal_name`` ``None``: the usual end.

    ``error``: the whole text for stderr; then nothing is done and the exit code is 1.
    """

    jobs: tuple[JobChoice, ...] = ()
    filters: tuple[tuple[str, str], ...] = ()
    flags: frozenset[str] = field(default_factory=frozenset)
    signal_name: str | None = None
    state: str | None = None
    error: str = ""

    def filter(self, name: str) -> str | None:
        """The value of ``account``, ``name``, ``partition``, ``user``...; ``None``: not given."""
        return dict(self.filters).get(name)


def read_scancel(words: Sequence[str]) -> ScancelRequest:
    """Understand the words after ``scancel``; never raises."""
    options, job_words, error = _options(words)
    if error:
        return ScancelRequest(error=error)
    flags = frozenset(name for name, value in options if value is None)
    if flags & {"help", "usage", "version"}:
        return ScancelRequest(flags=flags)
    values = {name: value for name, value in options if value is not None}
    jobs: list[JobChoice] = []
    for word in (piece for typed in job_words for piece in _split_ids(typed)):
        job = read_job(word)
        if job is None:
            return ScancelRequest(error=f"scancel: error: Invalid job id {word}")
        jobs.append(job)
    signal_text, state_text = values.pop("signal", None), values.pop("state", None)
    signal_name = None if signal_text is None else read_signal(signal_text)
    if signal_text is not None and signal_name is None:
        return ScancelRequest(error=f"Unknown job signal: {signal_text}")
    state = None if state_text is None else _state(state_text)
    if state_text is not None and state is None:
        valid = "Valid job states are PENDING, RUNNING, and SUSPENDED"
        return ScancelRequest(error=f"Invalid job state specified: {state_text}\n{valid}")
    if not jobs and not values and state is None and "me" not in flags:
        return ScancelRequest(error="scancel: error: No job identification provided")
    return ScancelRequest(tuple(jobs), tuple(values.items()), flags, signal_name, state)


def read_job(text: str) -> JobChoice | None:
    """``123``, ``123_4``, ``123_[1-3,5]``; ``None`` for anything else (steps are not jobs)."""
    found = _JOB.fullmatch(text)
    if found is None:
        return None
    number = int(found[1])
    if found[2] is not None:
        return JobChoice(number, (int(found[2]),), text)
    if found[3] is None:
        return JobChoice(number, None, text)
    indices: set[int] = set()
    for part in found[3].split(","):
        piece = _RANGE.fullmatch(part)
        if piece is None:
            return None
        first, last, step = int(piece[1]), int(piece[2] or piece[1]), int(piece[3] or 1)
        if last < first or step < 1 or (last - first) // step >= ARRAY_TASKS_MAX:
            return None
        indices.update(range(first, last + 1, step))
    return JobChoice(number, tuple(sorted(indices)), text)


def read_signal(text: str) -> str | None:
    """``USR1`` from ``USR1``, ``SIGUSR1`` or ``10``; ``None``: there is none."""
    names = {member.value: member.name.removeprefix("SIG") for member in signal.Signals}
    if re.fullmatch(r"\d{1,3}", text, re.ASCII):
        return names.get(int(text))
    name = text.upper().removeprefix("SIG")
    return name if name in names.values() else None


def _state(text: str) -> str | None:
    for name in _STATES:
        if text.upper() in {name, COMPACT[name]}:
            return name
    return None


def _split_ids(text: str) -> list[str]:
    """Commas between ids, but not inside brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text) if part] or [text]


def _options(words: Sequence[str]) -> tuple[list[tuple[str, str | None]], list[str], str]:
    """Options (flags with ``None``) and other words, as getopt_long sorts them; and what is wrong."""
    options: list[tuple[str, str | None]] = []
    others: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return options, [*others, *rest], ""
        if not word.startswith("-") or word == "-":
            others.append(word)
            continue
        wrong = _long(word, rest, options) if word.startswith("--") else _short(word, rest, options)
        if wrong:
            return [], [], f'scancel: {wrong}\nTry "scancel --help" for more information'
    return options, others, ""


def _long(word: str, rest: list[str], options: list[tuple[str, str | None]]) -> str:
    typed, equals, value = word[2:].partition("=")
    known = {**_FLAGS, **_VALUES}
    matching = [typed] if typed in known else [name for name in known if name.startswith(typed)]
    if len(matching) != 1:
        if not matching:
            return f"unrecognized option '--{typed}'"
        possibilities = " ".join(f"'--{name}'" for name in matching)
        return f"option '--{typed}' is ambiguous; possibilities: {possibilities}"
    name = matching[0]
    if name in _FLAGS:
        options.append((name, None))
        return f"option '--{name}' doesn't allow an argument" if equals else ""
    if not equals:
        if not rest:
            return f"option '--{name}' requires an argument"
        value = rest.pop(0)
    options.append(("name" if name == "jobname" else name, value))
    return ""


def _short(word: str, rest: list[str], options: list[tuple[str, str | None]]) -> str:
    for index, letter in enumerate(word[1:], start=1):
        name = _BY_LETTER.get(letter)
        if name is None:
            return f"invalid option -- '{letter}'"
        if name in _FLAGS:
            options.append((name, None))
            continue
        value = word[index + 1 :]
        if not value:
            if not rest:
                return f"option requires an argument -- '{letter}'"
            value = rest.pop(0)
        options.append((name, value))
        return ""
    return ""
