"""What an offer shows of a pool's network: the slowest pair, since a gang runs at the speed of that one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from starverse.domain.fabric.measured import Measured, Method, What

_BEST_FIRST = {
    What.ROUND_TRIP: (Method.TCP,),
    What.BANDWIDTH: (Method.IB_WRITE_BW, Method.TCP),
    What.ALL_REDUCE: (Method.NCCL_TESTS, Method.NCCL, Method.GLOO),
}
"""The methods that say most of a figure; the first that was measured counts."""


@dataclass(frozen=True, slots=True)
class ShownFigure:
    """The slowest pair's newest figure by one method. ``measured_at`` is of the oldest figure that counts."""

    what: What
    method: Method
    p50_nanoseconds: int | None
    p99_nanoseconds: int | None
    bytes_per_second: int | None
    message_bytes: int | None
    pairs: int
    measured_at: datetime
    same_machine: bool


def newest_of_each_pair(measured: Iterable[Measured]) -> tuple[Measured, ...]:
    """The newest figure of each pair, what and method; by pool, pair, what, method."""
    newest: dict[tuple[str, tuple[str, ...], What, Method], Measured] = {}
    for one in measured:
        key = (str(one.pool), tuple(sorted(one.pair)), one.figure.what, one.figure.method)
        if key not in newest or newest[key].measured_at < one.measured_at:
            newest[key] = one
    return tuple(newest[key] for key in sorted(newest))


def summarise(measured: Iterable[Measured], nodes: Collection[str]) -> tuple[ShownFigure, ...]:
    """One figure for each kind that was measured between nodes that are in the pool now; empty: none was.

    ``measured`` is of one pool. A figure whose pair left the pool is no longer about it.
    """
    here = [one for one in newest_of_each_pair(measured) if one.pair <= set(nodes)]
    shown = []
    for what, methods in _BEST_FIRST.items():
        method = next((m for m in methods if any(_is(one, what, m) for one in here)), None)
        if method is not None:
            shown.append(_slowest(what, method, [one for one in here if _is(one, what, method)]))
    return tuple(shown)


def _is(one: Measured, what: What, method: Method) -> bool:
    return one.figure.what is what and one.figure.method is method


def _slowest(what: What, method: Method, found: list[Measured]) -> ShownFigure:
    def slowness(one: Measured) -> tuple[float, float]:
        rate, time = one.figure.bytes_per_second, one.figure.p50_nanoseconds
        return (-rate if rate is not None else float("inf"), time if time is not None else 0)

    worst = max(found, key=slowness).figure
    return ShownFigure(
        what,
        method,
        worst.p50_nanoseconds,
        worst.p99_nanoseconds,
        worst.bytes_per_second,
        worst.message_bytes,
        pairs=len(found),
        measured_at=min(one.measured_at for one in found),
        same_machine=any(one.same_machine for one in found),
    )
