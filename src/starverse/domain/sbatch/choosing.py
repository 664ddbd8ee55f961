"""Which of several givens counts: command line over environment over script, the last within one source.

(sbatch manual page, Input Environment Variables.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from starverse.domain.sbatch.options import BY_VARIABLE, Context, Status, Takes
from starverse.domain.sbatch.origins import DEFAULT, BadValue, Notice, OptionFault, Origin, Source, variable
from starverse.domain.sbatch.words import Given, refused

T = TypeVar("T")

_STRENGTH = {source: rank for rank, source in enumerate(Source)}
_EXCLUSIVE_KEYS = {"mem": "only one of --mem, --mem-per-cpu and --mem-per-gpu"}


@dataclass(frozen=True, slots=True)
class Chosen:
    """An option that counts, with its value understood."""

    given: Given
    value: object


@dataclass(slots=True)
class Choice:
    """All options that count, by key, and the ``faults`` and ``notices`` gathered on the way."""

    chosen: dict[str, list[Chosen]] = field(default_factory=dict)
    faults: list[OptionFault] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)

    def value(self, name: str, kind: type[T]) -> T | None:
        """The value of the option called ``name``; ``None`` when it was not given or not understood."""
        found = self._named(name)
        if found is None:
            return None
        assert isinstance(found.value, kind), f"--{name} is a {type(found.value).__name__}"
        return found.value

    def values(self, name: str, kind: type[T]) -> tuple[T, ...]:
        """Every value of a repeatable option, once each."""
        found = [one.value for one in self.chosen.get(name, [])]
        return tuple(dict.fromkeys(value for value in found if isinstance(value, kind)))

    def origin(self, name: str) -> Origin:
        found = self._named(name)
        return DEFAULT if found is None else found.given.origin

    def fault(self, name: str, expected: str) -> None:
        """Record that the option called ``name`` contradicts another one."""
        found = self._named(name)
        value = "" if found is None else found.given.value
        self.faults.append(OptionFault(f"--{name}", value, expected, self.origin(name)))

    def _named(self, name: str) -> Chosen | None:
        for options in self.chosen.values():
            for one in options:
                if one.given.option.name == name:
                    return one
        return None


def from_environment(environment: Mapping[str, str]) -> tuple[list[Given], list[Notice]]:
    """The options that ``SBATCH_*`` variables set; flags are set by ``""``, ``yes`` or not zero."""
    given: list[Given] = []
    notices: list[Notice] = []
    for name, value in sorted(environment.items()):
        option = BY_VARIABLE.get(name)
        if option is None:
            if name.startswith("SBATCH_"):
                notices.append(Notice("no option has this environment variable; ignored", variable(name)))
        elif option.takes is not Takes.NOTHING:
            given.append(Given(option, value, variable(name)))
        elif _is_set(value):
            given.append(Given(option, "", variable(name)))
    return given, notices


def choose(givens: Iterable[Given], context: Context) -> Choice:
    """Sort out what was given everywhere: refused and ignored options, overridden ones, bad values."""
    choice = Choice()
    by_key: dict[str, list[Given]] = {}
    for given in givens:
        fault = refused(given)
        if fault is not None:
            choice.faults.append(fault)
        elif given.option.status is Status.IGNORED:
            choice.notices.append(Notice(f"{_written(given)} is ignored: {given.option.text}", given.origin))
        else:
            by_key.setdefault(given.option.key, []).append(given)
    for key, candidates in by_key.items():
        kept = _strongest(key, candidates, choice)
        choice.chosen[key] = _understood(kept, context, choice)
    return choice


def _is_set(value: str) -> bool:
    return value in {"", "yes"} or (value.isascii() and value.isdigit() and int(value[:9]) != 0)


def _strongest(key: str, candidates: list[Given], choice: Choice) -> list[Given]:
    best = min(_STRENGTH[given.origin.source] for given in candidates)
    strong = [given for given in candidates if _STRENGTH[given.origin.source] == best]
    weak = [given for given in candidates if _STRENGTH[given.origin.source] != best]
    if key in _EXCLUSIVE_KEYS and len({given.option.name for given in strong}) > 1:
        for given in strong:
            choice.faults.append(
                OptionFault(given.option.typed, given.value, _EXCLUSIVE_KEYS[key], given.origin)
            )
        return []
    winner = strong[-1]
    losers = weak if winner.option.repeats else [*weak, *strong[:-1]]
    kept = {(given.option.name, given.value) for given in (strong if winner.option.repeats else [winner])}
    for given in losers:
        if (given.option.name, given.value) in kept:
            continue
        text = f"{_written(given)} is overridden by {_written(winner)} ({winner.origin})"
        choice.notices.append(Notice(text, given.origin))
    return strong if winner.option.repeats else [winner]


def _understood(kept: list[Given], context: Context, choice: Choice) -> list[Chosen]:
    understood: list[Chosen] = []
    for given in kept:
        assert given.option.parse is not None, given.option.name
        try:
            understood.append(Chosen(given, given.option.parse(given.value, context)))
        except BadValue as error:
            shown = given.value if error.shown is None else error.shown
            choice.faults.append(OptionFault(given.option.typed, shown, error.expected, given.origin))
    return understood


def _written(given: Given) -> str:
    return f"{given.option.typed}={given.value}" if given.value else given.option.typed
