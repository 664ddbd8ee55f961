"""The one error hierarchy.

An error has a stable ``code``, a public ``detail`` (by default the class's docstring, which says what to
do next), an optional ``hint``, and an internal ``context`` that is logged and never shown. Outcomes that
a business expects ("does not fit", "would not be enough money" while deciding) are return values, not
errors. ``http/problems.py`` maps the classes to HTTP statuses, ``cli/remote/exit_codes.py`` maps the
codes to exit codes: one place each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One thing wrong in an input: where, what was given, what would be right."""

    field: str
    value: str
    expected: str

    def __str__(self) -> str:
        return f"{self.field}: {self.value!r}; expected {self.expected}"


class Uncopyable(Exception):
    """A tree that cannot be copied as it is, however often it is tried; the text says why. Not an answer to
    a request: whoever has trees copied catches it."""


class StarverseError(Exception):
    """Something went wrong; look at the server's log with the request id."""

    code = "internal"

    def __init__(
        self,
        detail: str | None = None,
        *,
        hint: str | None = None,
        context: Mapping[str, object] | None = None,
    ) -> None:
        self.detail = detail or " ".join((type(self).__doc__ or "").split())
        self.hint = hint
        self.context = dict(context or {})
        super().__init__(self.detail)


class Invalid(StarverseError):
    """The request has invalid fields; mend each one named and send it again."""

    code = "invalid"

    def __init__(
        self,
        detail: str | None = None,
        *,
        faults: tuple[FieldFault, ...] | list[FieldFault] = (),
        hint: str | None = None,
        context: Mapping[str, object] | None = None,
    ) -> None:
        self.faults = tuple(faults)
        if detail is None and self.faults:
            detail = "; ".join(str(fault) for fault in self.faults)
        super().__init__(detail, hint=hint, context=context)


class NotFound(StarverseError):
    """There is no such thing, or it is not yours; list what there is with the `ls` command."""

    code = "not_found"


class Unauthenticated(StarverseError):
    """Sign in first: `starverse login EMAIL`, or set STARVERSE_TOKEN."""

    code = "unauthenticated"


class Forbidden(StarverseError):
    """Your account may not do this; ask the team's owner or the operator."""

    code = "forbidden"


class Conflict(StarverseError):
    """It is in another state than this needs, or someone changed it meanwhile; look at it and try again."""

    code = "conflict"


class NotEnoughMoney(StarverseError):
    """The wallet does not cover this; top it up or choose a cheaper way named in the hint."""

    code = "not_enough_money"


class NoCapacity(StarverseError):
    """No cards of this kind are free; wait, or choose from `starverse offers`."""

    code = "no_capacity"


class LimitExceeded(StarverseError):
    """A limit was reached; wait for the time named, or ask the operator to raise it."""

    code = "limit_exceeded"

    def __init__(
        self,
        detail: str | None = None,
        *,
        retry_after_seconds: int | None = None,
        hint: str | None = None,
        context: Mapping[str, object] | None = None,
    ) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(detail, hint=hint, context=context)


class TooLarge(StarverseError):
    """What was sent is over the size limit; leave files out with .starverseignore, or use a dataset."""

    code = "too_large"


class TimedOut(StarverseError):
    """It did not finish in the time allowed; look at its state and try again."""

    code = "timed_out"


class Unavailable(StarverseError):
    """The platform cannot do this right now; nothing was changed, try again later."""

    code = "unavailable"


class InvariantBroken(StarverseError):
    """A rule of the platform does not hold; stop and look at the context before going on."""

    code = "invariant_broken"
