"""Where an option came from and what is wrong with it: what every answer of this package is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from starverse.domain.errors import FieldFault


class Source(StrEnum):
    """Who set an option; earlier members win over later ones (sbatch manual page, Input Environment)."""

    COMMAND_LINE = "command_line"
    ENVIRONMENT = "environment"
    SCRIPT = "script"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Origin:
    """One place: ``variable`` names it for the environment, ``line`` (counted from 1) for the script."""

    source: Source
    variable: str = ""
    line: int | None = None

    def __str__(self) -> str:
        if self.source is Source.SCRIPT:
            return f"script line {self.line}" if self.line is not None else "script"
        return self.variable or self.source.value.replace("_", " ")


COMMAND_LINE = Origin(Source.COMMAND_LINE)
DEFAULT = Origin(Source.DEFAULT)


def script_line(line: int) -> Origin:
    return Origin(Source.SCRIPT, line=line)


def variable(name: str) -> Origin:
    return Origin(Source.ENVIRONMENT, variable=name)


@dataclass(frozen=True, slots=True)
class OptionFault:
    """An option that stops the submission: ``option`` as people type it, or ``script`` for the file."""

    option: str
    value: str
    expected: str
    origin: Origin

    def __str__(self) -> str:
        return f"{self.option} ({self.origin}): {self.value!r}; expected {self.expected}"

    def field_fault(self) -> FieldFault:
        """The same for an :class:`~starverse.domain.errors.Invalid` error."""
        return FieldFault(f"{self.option} ({self.origin})", self.value, self.expected)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should know before the job costs money; stops nothing."""

    text: str
    origin: Origin | None = None

    def __str__(self) -> str:
        return self.text if self.origin is None else f"{self.origin}: {self.text}"


@dataclass(frozen=True, slots=True)
class IgnoredLine:
    """A script line that looks like a directive and is none; ``line`` counts from 1."""

    line: int
    text: str
    reason: str


class BadValue(ValueError):
    """A value that its option does not take; the argument says what would be right."""

    def __init__(self, expected: str, *, shown: str | None = None) -> None:
        super().__init__(expected)
        self.expected = expected
        self.shown = shown
