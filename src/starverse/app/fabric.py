"""Measuring the network between nodes of a pool: which pairs, by a job each, and what came out.

A check is recorded first, then its job is submitted (once, under a key made of the check's id), then what the
job printed is read and becomes figures. Nothing but a probe's result ever does.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from starverse.app.beneath import open_entry
from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.one_by_one import each
from starverse.app.platform import Platform
from starverse.app.submission import submit
from starverse.app.views import SubmitRequest
from starverse.db import accounts, events, fabric, jobs, nodes, teams
from starverse.db.events import Event
from starverse.db.fabric import Check
from starverse.domain.errors import FieldFault, Invalid, NotFound, StarverseError
from starverse.domain.fabric.measured import (
    RESULT_BYTES_MAX,
    CheckState,
    Measured,
    NotAResult,
    Pool,
    ProbeResult,
    read_result,
)
from starverse.domain.fabric.pairs import choose_pairs
from starverse.domain.fabric.summary import ShownFigure, summarise
from starverse.domain.ids import AccountId, TeamId, TokenId
from starverse.domain.workloads.records import Job
from starverse.domain.workloads.states import ENDED_JOB_STATES, JobState

PAIRS_MAX = 100
BATCH = 100
RESULT_FILE = "fabric.json"
TIME_LIMIT = "00:10:00"
_SCRIPT = f"""#!/bin/bash
# Measures the network between the two nodes of this job.
srun --ntasks-per-node=1 fabric-probe > {RESULT_FILE}
"""


@dataclass(frozen=True, slots=True)
class CheckView:
    """One pair. ``job`` is its number; ``price`` what its job costs at most, in words, before it is asked."""

    pool: str
    nodes: tuple[str, str]
    state: CheckState
    message: str
    job: str | None = None
    measured_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BatchView:
    """The checks of one request. ``id`` ``None``: nothing was asked yet. ``price`` is that of one pair."""

    id: str | None
    price: str
    checks: tuple[CheckView, ...]

    @property
    def settled(self) -> bool:
        return all(check.state in (CheckState.MEASURED, CheckState.FAILED) for check in self.checks)


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool and the figures between its nodes; ``shown`` is what offers tell. Both empty: not measured."""

    pool: str
    nodes: int
    shown: tuple[ShownFigure, ...]
    measured: tuple[Measured, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """``pool`` ``None``: every pool with two nodes. ``pairs`` are of each. ``lint``: change nothing."""

    pool: str | None = None
    pairs: int = 1
    lint: bool = False
    once: Once | None = None


def ask(platform: Platform, identity: Identity, wanted: Wanted) -> BatchView:
    """Choose pairs and record that they are to be measured; their jobs run for the caller's team.

    Raises ``Invalid`` where there is no pair, or where such a job is refused (no engine for several nodes).
    """
    if not 1 <= wanted.pairs <= PAIRS_MAX:
        fault = FieldFault("pairs", str(wanted.pairs), f"between 1 and {PAIRS_MAX}")
        raise Invalid(faults=[fault])
    with platform.database.read() as connection:
        planned = _plan(connection, wanted)
    first_pool, first_pair = planned[0]
    tried = submit(platform, identity, _request(first_pool, first_pair, None, lint=True))
    if tried.refused or tried.price is None:
        faults = [
            FieldFault(str(remark.line or "job"), remark.text, remark.reason) for remark in tried.refused
        ]
        raise Invalid("the job that measures would be refused", faults=faults)
    if wanted.lint:
        views = [CheckView(str(pool), pair, CheckState.ASKED, "") for pool, pair in planned]
        return BatchView(None, tried.price.text, tuple(views))
    batch_id = platform.ids.uuid7()

    def act(connection: Connection) -> str:
        now = platform.clock.now()
        before = claim(connection, AccountId(identity.account_id), wanted.once, batch_id, now)
        if before is not None:
            return before
        asked = [
            Check(
                platform.ids.uuid7(),
                batch_id,
                identity.team_id,
                identity.account_id,
                pool,
                *pair,
                CheckState.ASKED,
                "",
                now,
            )
            for pool, pair in planned
        ]
        fabric.add(connection, asked)
        words = f"{len(asked)} pairs, by {identity.email}"
        events.record(connection, Event(now, "fabric", batch_id, "asked", "", words, identity.team_id))
        return batch_id

    made = platform.database.write_retrying(act)
    platform.wakeups.wake("fabric")
    return _batch(platform, made, tried.price.text)


def get_batch(platform: Platform, batch_id: str) -> BatchView:
    """How the checks of a request fare."""
    return _batch(platform, batch_id, "")


def list_pools(platform: Platform) -> tuple[PoolView, ...]:
    """Every pool with what was measured between its nodes, by name."""
    with platform.database.read() as connection:
        found = _pools(connection)
        measured = fabric.newest(connection)
    views = []
    for pool, names in sorted(found.items(), key=lambda item: str(item[0])):
        own = tuple(one for one in measured if one.pool == pool and one.pair <= names)
        views.append(PoolView(str(pool), len(names), summarise(own, names), own))
    return tuple(views)


def shown_by_pool(
    connection: Connection, names: Mapping[str, frozenset[str]]
) -> dict[str, tuple[ShownFigure, ...]]:
    """What offers tell of each pool; ``names`` are the nodes of each."""
    by_pool: dict[str, list[Measured]] = defaultdict(list)
    for one in fabric.newest(connection):
        by_pool[str(one.pool)].append(one)
    return {pool: summarise(by_pool[pool], members) for pool, members in names.items()}


def advance(platform: Platform) -> list[str]:
    """One round: read the result of a job that ended, submit the next one; what was done, in words.

    One pair at a time, so that two do not measure each other.
    """
    with platform.database.read() as connection:
        waiting = fabric.unsettled(connection, BATCH)
        found = jobs.get_many(connection, [check.job_id for check in waiting if check.job_id])
    running = [check for check in waiting if check.state is CheckState.RUNNING]
    ended = [check for check in running if _job_of(check, found).state in ENDED_JOB_STATES]
    did = each(ended, lambda check: _settle(platform, check, _job_of(check, found)))
    if len(ended) == len(running):
        asked = [check for check in waiting if check.state is CheckState.ASKED]
        did += each(asked[:1], lambda check: _start(platform, check))
    return did


def _job_of(check: Check, found: Mapping[str, Job]) -> Job:
    return found[check.job_id or ""]


def _plan(connection: Connection, wanted: Wanted) -> list[tuple[Pool, tuple[str, str]]]:
    pools = _pools(connection, only_working=True)
    if wanted.pool is not None:
        named = [pool for pool in pools if str(pool) == wanted.pool]
        if not named:
            known = ", ".join(sorted(map(str, pools))) or "there is none"
            raise Invalid(faults=[FieldFault("pool", wanted.pool[:200], f"a pool: {known}")])
        pools = {named[0]: pools[named[0]]}
    last: dict[Pool, dict[frozenset[str], datetime]] = defaultdict(dict)
    for one in fabric.newest(connection):
        last[one.pool][one.pair] = one.measured_at
    planned = [
        (pool, pair)
        for pool, names in sorted(pools.items(), key=lambda item: str(item[0]))
        for pair in choose_pairs(names, last[pool], wanted.pairs)
    ]
    if not planned:
        few = ", ".join(f"{pool} has {len(names)}" for pool, names in pools.items()) or "there are no nodes"
        fault = FieldFault("pool", wanted.pool or "", f"a pool with two nodes that take work ({few})")
        raise Invalid("there is no pair of nodes to measure", faults=[fault])
    return planned


def _pools(connection: Connection, *, only_working: bool = False) -> dict[Pool, frozenset[str]]:
    pools: dict[Pool, set[str]] = defaultdict(set)
    for node in nodes.all_nodes(connection):
        if only_working and not node.takes_work:
            continue
        for card in node.cards:
            pools[Pool(node.zone, card.model, node.fabric)].add(node.id)
    return {pool: frozenset(names) for pool, names in pools.items()}


def _request(pool: Pool, pair: tuple[str, str], once: Once | None, *, lint: bool = False) -> SubmitRequest:
    """A job on exactly these two nodes, one card each, that nothing but the network is asked of."""
    words = (
        *("--job-name=fabric-check", "--nodes=2", f"--nodelist={','.join(pair)}", "--ntasks-per-node=1"),
        *(f"--gres=gpu:{pool.card}:1", "--net=host", "--tariff=spot", f"--time={TIME_LIMIT}"),
        *("--no-requeue", "--output=fabric-check.out"),
    )
    return SubmitRequest(_SCRIPT, "fabric-check.sh", argv=words, lint=lint, once=once)


def _start(platform: Platform, check: Check) -> str:
    """Submit its job; a refusal settles it, since the same would be refused again."""
    with platform.database.read() as connection:
        identity = _asker(connection, check)
    pair = (check.first_node, check.second_node)
    try:
        made = submit(
            platform, identity, _request(check.pool, pair, Once(f"fabric-check:{check.id}", check.id))
        )
    except StarverseError as error:
        hint = f"; {error.hint}" if error.hint else ""
        _move(platform, check, CheckState.FAILED, f"refused: {error.detail}{hint}")
        return f"{' - '.join(pair)}: refused"
    assert made.job is not None
    _move(platform, check, CheckState.RUNNING, "", job_id=made.job.id)
    return f"{' - '.join(pair)}: job {made.job.number}"


def _settle(platform: Platform, check: Check, job: Job) -> str:
    pair = f"{check.first_node} - {check.second_node}"
    try:
        if job.state is not JobState.SUCCEEDED:
            raise NotAResult(f"job {job.display_number} {job.state.value}: {job.message or job.reason}")
        result = read_result(_read(platform, job))
        if set(result.nodes) != {check.first_node, check.second_node}:
            raise NotAResult(f"job {job.display_number} ran on {' and '.join(result.nodes)}")
        if not result.figures:
            raise NotAResult(f"job {job.display_number} measured nothing")
    except (NotAResult, NotFound, OSError) as error:
        _move(platform, check, CheckState.FAILED, str(error))
        return f"{pair}: failed"
    _record(platform, check, job, result)
    return f"{pair}: measured"


def _record(platform: Platform, check: Check, job: Job, result: ProbeResult) -> None:
    """Figures and their date together. The date is the job's end: no later clock, no earlier word."""
    left_out = "; ".join(f"{method}: {why}" for method, why in sorted(result.left_out.items()))
    measured_at = job.ended_at or platform.clock.now()

    def act(connection: Connection) -> None:
        fabric.change(
            connection,
            check,
            CheckState.MEASURED,
            f"without {left_out}" if left_out else "",
            measured_at=measured_at,
            same_machine=result.same_machine,
        )
        fabric.add_figures(connection, check.id, result.figures)

    platform.database.write_retrying(act)


def _read(platform: Platform, job: Job) -> str:
    with open_entry(platform.paths.workspace(job.workspace_id), RESULT_FILE) as descriptor:
        parts, left = [], RESULT_BYTES_MAX + 1
        while left > 0 and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
    return b"".join(parts).decode("utf-8", "replace")


def _move(
    platform: Platform, check: Check, state: CheckState, message: str, *, job_id: str | None = None
) -> None:
    platform.database.write_retrying(
        lambda connection: fabric.change(connection, check, state, message, job_id=job_id)
    )


def _asker(connection: Connection, check: Check) -> Identity:
    """Who asked, as of now."""
    account = accounts.get_account(connection, AccountId(check.account_id))
    team = teams.get_team(connection, TeamId(check.team_id))
    if account is None or team is None:
        raise NotFound("Who asked for this measurement is gone.")
    return Identity(
        account_id=account.id,
        email=account.email,
        team_id=team.id,
        team_name=team.name,
        operator=account.operator,
        scope="account",
        token_id=TokenId("fabric"),
        allocation_id=None,
    )


def _batch(platform: Platform, batch_id: str, price: str) -> BatchView:
    with platform.database.read() as connection:
        found = fabric.of_batch(connection, batch_id)
        known = jobs.get_many(connection, [check.job_id for check in found if check.job_id])
    if not found:
        raise NotFound(f"There is no fabric check {batch_id[:80]!r}.")
    views = [
        CheckView(
            str(check.pool),
            (check.first_node, check.second_node),
            check.state,
            check.message,
            known[check.job_id].display_number if check.job_id in known else None,
            check.measured_at,
        )
        for check in found
    ]
    return BatchView(batch_id, price, tuple(views))
