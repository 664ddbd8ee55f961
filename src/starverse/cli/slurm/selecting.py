"""Which jobs a Slurm command means: by id, user, name, partition, label, state; asked of the API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from starverse.cli.remote.session import Session
from starverse.cli.slurm.lines import PARTITION_DEFAULT, node_names, numbers_of, user_name
from starverse.client.shapes import Job

OPEN_STATES = ("queued", "running")
ARRAY_TASKS_MAX = 10_000

_JOB = re.compile(r"(\d{1,10})(?:_(?:(\d{1,7})|\[([\d,:\-]+)(?:%\d+)?\]))?", re.ASCII)
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?", re.ASCII)
_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True, slots=True)
class JobChoice:
    """A job, or tasks of an array; ``indices`` ``None``: all of it."""

    number: int
    indices: tuple[int, ...] | None = None

    @property
    def numbers(self) -> tuple[str, ...]:
        """Each as the API names it: ``123`` or ``123_4``."""
        if self.indices is None:
            return (str(self.number),)
        return tuple(f"{self.number}_{index}" for index in self.indices)


def read_job(text: str) -> JobChoice | None:
    """``123``, ``123_4``, ``123_[1-3,5]``; ``None`` for anything else (steps are not jobs)."""
    found = _JOB.fullmatch(text)
    if found is None:
        return None
    number = int(found[1])
    if found[2] is not None:
        return JobChoice(number, (int(found[2]),))
    if found[3] is None:
        return JobChoice(number)
    indices: set[int] = set()
    for part in found[3].split(","):
        piece = _RANGE.fullmatch(part)
        if piece is None:
            return None
        first, last, step = int(piece[1]), int(piece[2] or piece[1]), int(piece[3] or 1)
        if last < first or step < 1 or (last - first) // step >= ARRAY_TASKS_MAX:
            return None
        indices.update(range(first, last + 1, step))
    return JobChoice(number, tuple(sorted(indices)))


def split_list(text: str) -> list[str]:
    """The parts of a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def read_jobs(text: str) -> tuple[list[JobChoice], str]:
    """``12,13_4,14_[1-3]``; second, the part that is no job."""
    choices = []
    for part in filter(None, _COMMA_OUTSIDE_BRACKETS.split(text)):
        choice = read_job(part)
        if choice is None:
            return [], part
        choices.append(choice)
    return choices, ""


def is_chosen(job: Job, choices: Iterable[JobChoice]) -> bool:
    """Whether a job is one of the choices: by its own number, or as a task of an array."""
    number, array, index = numbers_of(job)
    return any(
        choice.number in (number, array) if choice.indices is None else _is_task(choice, array, index)
        for choice in choices
    )


def _is_task(choice: JobChoice, array: int | None, index: int | None) -> bool:
    return choice.number == array and index in (choice.indices or ())


def users_filter(text: str, session: Session) -> Callable[[Job], bool]:
    """``-u``: mail addresses or what stands before the @; one's own Unix name and ``me`` mean the caller."""
    names = set(split_list(text))
    own = {session.environ.get("USER"), session.environ.get("LOGNAME"), "me"} & names
    if own:
        names.add(session.client().people.me()["account"]["email"])
    return lambda job: job["account"] in names or user_name(job["account"]) in names


def member_filters(values: dict[str, str]) -> list[Callable[[Job], bool]]:
    """Filters by ``name``, ``partition``, ``account`` and ``nodelist``, each a list with commas."""
    picks: dict[str, Callable[[Job], set[str]]] = {
        "name": lambda job: {job["name"]},
        "partition": lambda job: {job.get("partition") or PARTITION_DEFAULT},
        "account": lambda job: {job.get("cost_label") or "", job["team"]},
        "nodelist": lambda job: set(node_names(job.get("node_list"))),
    }
    filters = []
    for name, pick in picks.items():
        if name in values:
            wanted = set(split_list(values[name]))
            filters.append(_overlap(pick, wanted))
    return filters


def _overlap(pick: Callable[[Job], set[str]], wanted: set[str]) -> Callable[[Job], bool]:
    return lambda job: bool(pick(job) & wanted)


def kept(jobs: Iterable[Job], filters: Iterable[Callable[[Job], bool]]) -> Iterator[Job]:
    """Jobs that every filter lets through."""
    tests = list(filters)
    return (job for job in jobs if all(test(job) for test in tests))
