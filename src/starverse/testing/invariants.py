"""What must hold of a whole platform at any moment, by name: checked from outside, against what really ran.

Each check reads the database as it stands and the launchers of the fake engine, which are the truth about
what ran and when. ``TICK`` holds after every tick, ``END`` once everything has come to rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, func, select

from starverse.db import allocations as allocation_rows
from starverse.db import jobs as job_rows
from starverse.db import ledger
from starverse.db.charges import StoredCharge, charges_of_allocations
from starverse.db.ledger_tables import ledger_accounts, open_holds, transfers
from starverse.db.tables import (
    allocation_cards,
    checkpoints,
    credit_backs,
    events,
    holds,
    memberships,
    price_books,
)
from starverse.domain.ids import AllocationId
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.states import (
    ALLOCATION_TRANSITIONS,
    ENDED_JOB_STATES,
    JOB_TRANSITIONS,
    AllocationState,
    JobState,
    path,
)
from starverse.engines.fake.run import FakeLauncher
from starverse.testing.plain_price import PlainBook, PlainUsage, book_at, in_window, plain_cost
from starverse.testing.simulated_world import SimulatedWorld

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that does not hold, and where."""

    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


@dataclass(slots=True)
class Picture:
    """Everything the checks look at, read in one transaction."""

    now: datetime
    jobs: dict[str, Job]
    allocations: dict[str, Allocation]
    launchers: Mapping[str, FakeLauncher]
    open_cards: list[tuple[str, str]]
    charges: dict[str, list[StoredCharge]]
    held: dict[str, str]
    """Hold id -> its allocation, for holds that stand open."""
    books: tuple[PlainBook, ...]
    members: dict[str, tuple[tuple[datetime, str | None], ...]]
    before: Picture | None = None

    def live(self) -> Iterator[FakeLauncher]:
        """Launchers that hold their claim and have not ended."""
        return (run for run in self.launchers.values() if run.claimed and not run.ended)

    def spec_of(self, launcher: FakeLauncher) -> Job | None:
        return self.jobs.get(launcher.spec.job_id)


@dataclass(slots=True)
class Inspector:
    """Looks at a world after each tick."""

    world: SimulatedWorld
    misled: list[tuple[datetime, datetime]] = field(default_factory=list)
    """Spans in which the server's clock was wrong: it cannot know the true time then."""
    last: Picture | None = None
    _unowned: frozenset[str] = frozenset()
    _sequence: int = -1
    _settled: set[str] = field(default_factory=set)

    def tick(self, done: Collection[str] = ()) -> list[Broken]:
        """Every invariant of ``TICK``; that a sweep leaves nothing running that nobody owns, and that an
        observing leaves no card with another than who has it. ``done``: the loops that had a whole round
        since the last look."""
        with self.world.database.read() as connection:
            picture = self._look(connection)
            broken = list(self._ledger(connection))
            broken += _resumed_from_verified(connection, picture, self.world)
            broken += _credit_within_charge(connection, picture)
            broken += _noticed_once(connection, picture)
        picture.before = self.last
        for check in TICK.values():
            broken += check(picture)
        broken += [
            Broken("started_once", f"{key} was started {times} times")
            for key, times in self.world.engine.starts.items()
            if times > 1
        ]
        broken += self._charges_exact(picture)
        broken += _windows_kept(picture, self.misled)
        unowned = frozenset(
            run.spec.allocation_id
            for run in picture.live()
            if not picture.allocations[run.spec.allocation_id].open
        )
        if "observe" in done:
            broken += _cards_as_bound(picture)
        if "sweep" in done and self._unowned & unowned:
            broken.append(Broken("nothing_unowned_runs", f"{sorted(self._unowned & unowned)} ran on"))
        picture.before = None
        self.last, self._unowned = picture, unowned
        return broken

    def end(self) -> list[Broken]:
        """Every invariant of ``END``."""
        with self.world.database.read() as connection:
            picture = self._look(connection)
            left = allocation_rows.not_cleaned(connection)
        broken = [Broken("all_cleaned", f"{a.id} left something on its node") for a in left]
        for check in END.values():
            broken += check(picture)
        return broken

    def _look(self, connection: Connection) -> Picture:
        jobs = {job.id: job for job in job_rows.in_state(connection, *JobState)}
        runs = allocation_rows.of_jobs(connection, list(jobs))
        found = {a.id: a for of_job in runs.values() for a in of_job}
        charged: dict[str, list[StoredCharge]] = defaultdict(list)
        wanted = [AllocationId(key) for key in found if key not in self._settled]
        for charge in charges_of_allocations(connection, wanted):
            charged[charge.allocation_id].append(charge)
        if self.last is not None:
            for key in self._settled:
                charged[key] = self.last.charges.get(key, [])
        members: dict[str, list[tuple[datetime, str | None]]] = defaultdict(list)
        for row in connection.execute(select(memberships).order_by(memberships.c.since)):
            members[row.account_id].append((row.since, row.member))
        return Picture(
            now=self.world.clock.now(),
            jobs=jobs,
            allocations=found,
            launchers=self.world.engine.launchers,
            open_cards=[
                (row.card_id, row.allocation_id)
                for row in connection.execute(select(allocation_cards).where(allocation_cards.c.open))
            ],
            charges=charged,
            held={
                row.id: row.allocation_id
                for row in connection.execute(select(holds).where(holds.c.state == "open"))
            },
            books=tuple(
                PlainBook.read(row.effective_from, row.content)
                for row in connection.execute(select(price_books))
            ),
            members={key: tuple(value) for key, value in members.items()},
        )

    def _ledger(self, connection: Connection) -> Iterator[Broken]:
        """The books are sound, no wallet is below zero, open holds belong to open allocations."""
        newest = connection.execute(select(func.max(transfers.c.sequence))).scalar() or 0
        if newest == self._sequence:
            return
        self._sequence = newest
        for found in ledger.check(connection):
            yield Broken("ledger_sound", f"{found.name} {found.subject}: {found.detail}")
        owned = select(ledger_accounts).where(ledger_accounts.c.team_id.is_not(None))
        for account in connection.execute(owned):
            free = account.credits_posted.micro - account.debits_posted.micro - account.debits_pending.micro
            if free < 0:
                yield Broken("wallets_not_below_zero", f"{account.id} stands at {free}")
        subjects = connection.execute(
            select(transfers.c.subject).join(open_holds, open_holds.c.transfer_id == transfers.c.id)
        ).scalars()
        in_books = set(subjects)
        standing = select(holds.c.allocation_id).where(holds.c.state == "open")
        in_table = set(connection.execute(standing).scalars())
        for subject in sorted(in_books - in_table):
            yield Broken("holds_match", f"the ledger holds money for {subject}, and no hold stands open")

    def _charges_exact(self, p: Picture) -> Iterator[Broken]:
        """What is over is charged exactly what its true run costs; then it never changes again."""
        for key, allocation in p.allocations.items():
            if allocation.closed_at is None or key in self._settled:
                continue
            yield from _charged_as_run(p, allocation, p.launchers.get(key))
            self._settled.add(key)


def _charged_as_run(p: Picture, a: Allocation, run: FakeLauncher | None) -> Iterator[Broken]:
    total = sum(charge.total.micro for charge in p.charges[a.id])
    if run is None or run.state.ready_at is None:
        if total or a.ready_at is not None:
            yield Broken("no_charge_before_ready", f"{a.id} never was ready and is charged {total}")
        return
    ready = _instant(run.state.ready_at)
    end = ready + timedelta(seconds=_elapsed(run))
    if a.notice_deadline is not None and a.tariff.value == "spot":
        end = min(end, a.notice_deadline)
    start = _up(ready)
    end = max(end.replace(microsecond=0), start + timedelta(seconds=1))
    assert a.card_model is not None
    usage = PlainUsage(
        start,
        end,
        a.cards_priced,
        a.tariff.value,
        a.card_model,
        a.fabric,
        p.members.get(a.account_id, ()),
    )
    cost = plain_cost(usage, p.books)
    if cost != total:
        spans = ", ".join(f"{c.start}..{c.end} {c.total.micro}" for c in p.charges[a.id])
        ran = f"{a.id} ({a.state.value}, {a.cause}) ran {start}..{end} for {cost}"
        yield Broken("charged_exactly_as_run", f"{ran} and is charged {total}: {spans}")


def _elapsed(run: FakeLauncher) -> float:
    """Seconds from ready to the end, or to the last proof of life of one that died."""
    assert run.state.ready_at is not None
    ended = run.state.ended_at if run.state.ended_at is not None else run.state.alive_at
    return max(0.0, ended - run.state.ready_at)


def _up(instant: datetime) -> datetime:
    """The first whole second at or after it."""
    whole = instant.replace(microsecond=0)
    return whole if whole == instant else whole + timedelta(seconds=1)


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _cards_once(p: Picture) -> Iterator[Broken]:
    """No card is in two open allocations, nor under two living launchers."""
    for card, count in Counter(card for card, _ in p.open_cards).items():
        if count > 1:
            yield Broken("cards_once", f"{card} is in {count} open allocations")
    for card_id, count in Counter(card for run in p.live() for card in cards_of(run)).items():
        if count > 1:
            yield Broken("cards_once", f"{count} launchers run on {card_id}")


def cards_of(run: FakeLauncher) -> set[str]:
    """The cards that a launcher really has, as its nodes name them."""
    if run.state.bound is None:
        return {card.card_id for card in run.spec.cards}
    return {f"{node}:{index}" for node, indices in run.state.bound for index in indices}


def _cards_as_bound(p: Picture) -> Iterator[Broken]:
    """Whoever runs has on record the cards that it really has."""
    for run in p.live():
        a = p.allocations[run.spec.allocation_id]
        if a.state is AllocationState.RUNNING and set(a.cards) != cards_of(run):
            yield Broken("cards_as_bound", f"{a.id} has {sorted(a.cards)}, really {sorted(cards_of(run))}")


def _cards_free_again(p: Picture) -> Iterator[Broken]:
    """A card is taken if and only if its allocation is open."""
    taken = {(card, key) for card, key in p.open_cards}
    due = {(card, a.id) for a in p.allocations.values() if a.open for card in a.cards}
    for card, key in sorted(taken ^ due):
        yield Broken("cards_free_again", f"{card} of {key} ({p.allocations[key].state.value})")


def _started_once(p: Picture) -> Iterator[Broken]:
    for key, run in p.launchers.items():
        known = p.allocations.get(key)
        if known is None:
            yield Broken("started_once", f"{key} runs and is not on record")
        elif known.attempt != run.spec.attempt:
            yield Broken("started_once", f"{key} runs attempt {run.spec.attempt} of {known.attempt}")


def _holds_of_open(p: Picture) -> Iterator[Broken]:
    for hold, key in p.held.items():
        if not p.allocations[key].open:
            state = p.allocations[key].state.value
            yield Broken("holds_match", f"hold {hold} of {key} ({state}) stands open")
    holding = set(p.held.values())
    for a in p.allocations.values():
        if a.open and a.ready_at is None and a.id not in holding:
            yield Broken("holds_match", f"{a.id} ({a.state.value}) has no money held")


def _charges_in_order(p: Picture) -> Iterator[Broken]:
    """Charges of an allocation follow each other from ready on, and never pass its last proof of life."""
    for key, charged in p.charges.items():
        run = p.launchers.get(key)
        if not charged:
            continue
        if run is None or run.state.ready_at is None:
            yield Broken("no_charge_before_ready", f"{key} is charged and never was ready")
            continue
        end = _up(_instant(run.state.ready_at))
        for charge in charged:
            if charge.start != end:
                yield Broken("charged_once", f"{key}: {charge.start} follows {end}")
            end = charge.end
        last = _instant(run.state.alive_at if run.state.ended_at is None else run.state.ended_at)
        if end > last + timedelta(seconds=2):
            yield Broken("not_charged_past_its_last_sign", f"{key} is charged to {end}, last seen {last}")


def _jobs_sound(p: Picture) -> Iterator[Broken]:
    """Legal states, an end has its time, whoever waits is told why, attempts count up."""
    runs: dict[str, list[Allocation]] = defaultdict(list)
    for a in p.allocations.values():
        runs[a.job_id].append(a)
        if a.cause is EndCause.PLATFORM and a.ready_at is not None:
            yield Broken("nobody_is_stopped_for_nothing", f"{a.id}: {a.message}")
    for job in p.jobs.values():
        if (job.state in ENDED_JOB_STATES) != (job.ended_at is not None):
            yield Broken("ends_have_times", f"job {job.display_number} is {job.state.value}")
        if job.state is JobState.QUEUED and not job.reason:
            yield Broken("waits_have_reasons", f"job {job.display_number} waits for nothing")
        attempts = sorted(a.attempt for a in runs[job.id])
        if attempts != list(range(job.attempts - len(attempts) + 1, job.attempts + 1)):
            yield Broken("attempts_count_up", f"job {job.display_number}: {attempts} of {job.attempts}")
        open_runs = [a for a in runs[job.id] if a.open]
        if len(open_runs) > 1 or (open_runs and job.state in ENDED_JOB_STATES):
            yield Broken("one_run_at_a_time", f"job {job.display_number} is {job.state.value}, runs on")
        if job.state is JobState.RUNNING and not open_runs:
            yield Broken("one_run_at_a_time", f"job {job.display_number} is running, and nothing runs")


def _legal_transitions(p: Picture) -> Iterator[Broken]:
    """What is on record now can be reached from what was on record at the last tick."""
    if p.before is None:
        return
    for key, job in p.jobs.items():
        old = p.before.jobs.get(key)
        if old is not None and path(JOB_TRANSITIONS, old.state, job.state) is None:
            yield Broken("legal_transitions", f"job {job.display_number}: {old.state} -> {job.state}")
    for key, a in p.allocations.items():
        was = p.before.allocations.get(key)
        if was is not None and path(ALLOCATION_TRANSITIONS, was.state, a.state) is None:
            yield Broken("legal_transitions", f"allocation {key}: {was.state} -> {a.state}")
        if was is not None and not was.open and (was.ended_at, was.cause) != (a.ended_at, a.cause):
            yield Broken("legal_transitions", f"allocation {key} ended twice")


def _costs_within_limits(p: Picture) -> Iterator[Broken]:
    """Nobody pays more than ``--cost-max`` for all runs of a job."""
    paid: Counter[str] = Counter()
    for charged in p.charges.values():
        for charge in charged:
            paid[charge.job_id] += charge.total.micro - charge.written_off.micro
    for job in p.jobs.values():
        limit = job.spec.cost_max
        if limit is not None and paid[job.id] > limit.micro:
            yield Broken("cost_max_kept", f"job {job.display_number} paid {paid[job.id]} of {limit.micro}")


def _arrays_within_limits(p: Picture) -> Iterator[Broken]:
    active = Counter(
        p.jobs[a.job_id].number
        for a in p.allocations.values()
        if a.open and p.jobs[a.job_id].array_index is not None
    )
    for job in p.jobs.values():
        limit = job.spec.array.running_max if job.spec.array is not None else None
        if limit is not None and active[job.number] > limit:
            yield Broken("array_limits_kept", f"{active[job.number]} tasks of array {job.number} run")


def _runs_bounded(p: Picture) -> Iterator[Broken]:
    """Nothing runs past its time limit or past the money that was held for it, but for the time to a KILL."""
    for run in p.launchers.values():
        if run.state.ready_at is None:
            continue
        length, kill = _elapsed(run), run.spec.kill_after_seconds
        if length > run.spec.time_limit_seconds + kill + 1:
            yield Broken("time_limits_kept", f"{run.spec.allocation_id} ran {length} s")
        a = p.allocations[run.spec.allocation_id]
        told = run.spec.funded_seconds
        until = a.funded_until or _instant(run.state.ready_at + told + kill)
        slack = 1 if told > 3 * kill else 1 + kill  # TERM comes in the last quarter of a short hold
        if _instant(run.state.ready_at + length) > until + timedelta(seconds=slack):
            limited = length >= run.spec.time_limit_seconds - 1
            if not limited:
                yield Broken("runs_are_funded", f"{a.id} ran {length} s, funded until {until}")


def _windows_kept(p: Picture, misled: list[tuple[datetime, datetime]]) -> Iterator[Broken]:
    """A job with a window runs inside it only, as far as the server's clock could tell."""
    for run in p.launchers.values():
        job = p.spec_of(run)
        if job is None or job.spec.window is None or run.state.ready_at is None:
            continue
        first = _instant(run.state.ready_at)
        last = _instant(run.state.ready_at + _elapsed(run)) - MICROSECOND
        if any(start <= last and first - timedelta(minutes=10) <= end for start, end in misled):
            continue
        for instant in (first, max(first, last)):
            if not in_window(book_at(p.books, instant), job.spec.window, instant):
                yield Broken(
                    "windows_kept", f"job {job.display_number} ({run.spec.allocation_id}) runs at {instant}"
                )


def _resumed_from_verified(connection: Connection, p: Picture, world: SimulatedWorld) -> Iterator[Broken]:
    """A run resumes only from a published checkpoint of its job whose bytes are as they were saved."""
    for run in p.launchers.values():
        if run.spec.resume_from:
            root = run.spec.checkpoints.rpartition("/")[2]
            key = (root, run.spec.resume_from)
            if key not in world.published or key in world.damaged:
                yield Broken("resumes_from_verified", f"{run.spec.allocation_id} resumes from {key}")
    rows = connection.execute(select(checkpoints).where(checkpoints.c.verified_at.is_not(None)))
    for row in rows:
        if (row.job_id, row.folder) in world.damaged:
            yield Broken("resumes_from_verified", f"damaged {row.folder} of {row.job_id} counts as verified")


def _credit_within_charge(connection: Connection, p: Picture) -> Iterator[Broken]:
    for row in connection.execute(select(credit_backs)):
        total = sum(charge.total.micro for charge in p.charges[row.allocation_id])
        if row.amount_micro.micro > total:
            yield Broken("credit_within_charge", f"{row.allocation_id}: {row.amount_micro} of {total}")


def _noticed_once(connection: Connection, p: Picture) -> Iterator[Broken]:
    """Nobody is told of one stop twice, whoever of several servers says it."""
    told = select(events.c.subject_id, func.count().label("times")).where(events.c.kind == "notice")
    noticed = Counter(a.job_id for a in p.allocations.values() if a.notice_at is not None)
    for row in connection.execute(told.group_by(events.c.subject_id)):
        if row.times > noticed[row.subject_id]:
            yield Broken("noticed_once", f"{row.subject_id}: {row.times} of {noticed[row.subject_id]}")


def _at_rest(p: Picture) -> Iterator[Broken]:
    """Nothing runs, no card is taken, no money is held."""
    for run in p.live():
        yield Broken("nothing_unowned_runs", f"{run.spec.allocation_id} runs on")
    for a in p.allocations.values():
        if a.open:
            yield Broken("comes_to_rest", f"{a.id} is {a.state.value} for ever")
    for card, key in p.open_cards:
        yield Broken("cards_free_again", f"{card} of {key}")
    for hold, key in p.held.items():
        yield Broken("holds_match", f"hold {hold} of {key} stands open")


def _waits_are_right(p: Picture) -> Iterator[Broken]:
    """Whoever still waits, waits for something that really is so."""
    allowed = {"no_money", "window_closed", "dependency", "price_above_max", "begin_time"}
    by_number: dict[int, list[Job]] = defaultdict(list)
    for job in p.jobs.values():
        by_number[job.number].append(job)
    for job in p.jobs.values():
        if job.state in ENDED_JOB_STATES:
            continue
        if job.state is JobState.RUNNING or job.reason not in allowed:
            yield Broken(
                "comes_to_rest", f"job {job.display_number} is {job.state.value}: {job.reason}, {job.message}"
            )
        numbers = {c.job_number for c in job.spec.dependencies.conditions if c.job_number is not None}
        named = any(c.job_number is None for c in job.spec.dependencies.conditions)
        waiting = any(j.state not in ENDED_JOB_STATES for number in numbers for j in by_number[number])
        if job.reason == "dependency" and not waiting and not named:
            yield Broken("comes_to_rest", f"job {job.display_number} waits for jobs that ended")


TICK: dict[str, Callable[[Picture], Iterator[Broken]]] = {
    "cards_once": _cards_once,
    "cards_free_again": _cards_free_again,
    "started_once": _started_once,
    "holds_match": _holds_of_open,
    "charged_once": _charges_in_order,
    "jobs_sound": _jobs_sound,
    "legal_transitions": _legal_transitions,
    "cost_max_kept": _costs_within_limits,
    "array_limits_kept": _arrays_within_limits,
    "runs_bounded": _runs_bounded,
}
END: dict[str, Callable[[Picture], Iterator[Broken]]] = {
    "at_rest": _at_rest,
    "waits_are_right": _waits_are_right,
}
