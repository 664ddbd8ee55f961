"""What a submission would cost, what would cost less, and what the money there is would pay for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from starverse.app.job_views import wish_of
from starverse.app.views import PriceView
from starverse.db.metering import StoredBooks
from starverse.domain.money import Money
from starverse.domain.pricing.first_hour import cost_of, dearest_pool
from starverse.domain.pricing.job_quote import JobQuote, quote_job
from starverse.domain.pricing.paying import Piece, Sources, pay
from starverse.domain.pricing.rating import HOUR_SECONDS, MemberChange, Terms
from starverse.domain.pricing.windows import window_edges
from starverse.domain.sbatch.times import format_time_limit
from starverse.domain.scheduling.fit import pools_asked
from starverse.domain.scheduling.snapshot import Node
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan, ceil_to_second, format_instant
from starverse.domain.workloads.specs import JobSpec
from starverse.engines.base import Capabilities


@dataclass(frozen=True, slots=True)
class World:
    """What a submission is checked against: its rows are read in one transaction."""

    now: datetime
    nodes: tuple[Node, ...]
    kinds: tuple[Node, ...]
    books: StoredBooks
    members: tuple[MemberChange, ...]
    engine: Capabilities


def price_of(world: World, spec: JobSpec) -> PriceView | None:
    """What one task costs at the dearest pool that it may land in."""
    pool = pool_of(world, spec)
    if pool is None:
        return None
    found = _quote(world, spec, pool, spec.tariff)
    if found is None:
        return None
    hour, later = found.hour, found.starts_at > ceil_to_second(world.now)
    when = f"its first hour, from {format_instant(found.starts_at)} on" if later else "the next hour"
    cheaper = []
    if spec.tariff is Tariff.ON_DEMAND:
        spot = _quote(world, spec, pool, Tariff.SPOT)
        if spot is not None and spot.hour < hour:
            cheaper.append(f"--tariff spot: CNY {spot.hour.decimal()} for {when.partition(',')[0]}")
        night = None if spec.window else _night_cost(world, spec, pool, HOUR_SECONDS)
        if night is not None and night[1] < hour:
            cheaper.append(f"{night[0]}: CNY {night[1].decimal()} an hour")
    text = (
        f"{spec.resources.cards} x {'/'.join(pool)} {spec.tariff.value}: CNY {hour.decimal()} for {when}, "
        f"at most CNY {found.whole.decimal()} for its time limit of "
        f"{format_time_limit(spec.time_limit_seconds)}"
    )
    return PriceView(spec.tariff, hour, found.whole, text, tuple(cheaper))


def _quote(world: World, spec: JobSpec, pool: tuple[str, str], tariff: Tariff) -> JobQuote | None:
    terms = Terms(tariff, *pool, members=world.members)
    return quote_job(wish_of(spec, terms), world.now, world.books.books)


def pool_of(world: World, spec: JobSpec) -> tuple[str, str] | None:
    """Where no node is known yet: what its own words name, if that has a price."""
    asked = spec.priced_resources
    pools = pools_asked(world.kinds, asked)
    if not pools and asked.card_model is not None:
        pools = frozenset({(asked.card_model, asked.fabric or "eth")})
    return dearest_pool(pools, world.books.books.at(world.now))


def _cost(world: World, spec: JobSpec, tariff: Tariff, pool: tuple[str, str], seconds: int) -> Money:
    terms = Terms(tariff, *pool, members=world.members)
    return cost_of(terms, spec.resources.cards, world.now, world.books.books, seconds)


def _night_cost(world: World, spec: JobSpec, pool: tuple[str, str], seconds: int) -> tuple[str, Money] | None:
    """The option and the cost of so long inside the window of on-demand; ``None`` without such a window."""
    book = world.books.books.at(world.now)
    window = next(iter(book.windows_of(Tariff.ON_DEMAND)), None)
    name = next((name for name, known in book.windows.items() if known == window), None)
    if window is None or name is None:
        return None
    start = ceil_to_second(world.now)
    edges = window_edges(window, Timespan(start, start + timedelta(hours=50)), book.timezone)
    costs = [_cost(replace(world, now=edge), spec, Tariff.ON_DEMAND, pool, seconds) for edge in edges[:2]]
    return (f"--window {name}", min(costs)) if costs else None


def ways_that_fit(world: World, spec: JobSpec, sources: Sources) -> list[str]:
    """What the money there is would pay for as long: spot, the night, or fewer cards; each with its cost."""
    pool = pool_of(world, spec)
    if pool is None:
        return []
    seconds = min(HOUR_SECONDS, spec.time_limit_seconds)
    share = world.books.books.at(world.now).coupon_share_max
    start = ceil_to_second(world.now)

    def payable(cost: Money) -> bool:
        piece = Piece(start, start + timedelta(seconds=seconds), cost)
        return not pay((piece,), sources, share).missing

    ways: list[tuple[str, Money]] = []
    if spec.tariff is Tariff.ON_DEMAND:
        ways.append(("--tariff spot", _cost(world, spec, Tariff.SPOT, pool, seconds)))
        night = _night_cost(world, spec, pool, seconds)
        if night is not None and spec.window is None:
            ways.append(night)
    fitting = [(way, cost) for way, cost in ways if payable(cost)]
    if not fitting:
        for cards in range(spec.resources.cards - 1, 0, -1):
            cost = cost_of(
                Terms(spec.tariff, *pool, members=world.members), cards, world.now, world.books.books, seconds
            )
            if payable(cost):
                fitting = [(f"{cards} x {pool[0]}", cost)]
                break
    length = "an hour" if seconds == HOUR_SECONDS else f"for {format_time_limit(seconds)}"
    return [f"{way}: CNY {cost.decimal()} {length}" for way, cost in fitting]
