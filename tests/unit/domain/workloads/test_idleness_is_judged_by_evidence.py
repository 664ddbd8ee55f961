"""When an instance counts as idle: tables and properties."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starverse.domain.workloads.idleness import (
    FRESH_SECONDS,
    SETTLE_SECONDS,
    WARN_SHARE,
    Evidence,
    Idleness,
    Verdict,
    idle_limit_seconds,
    judge,
)
from starverse.domain.workloads.instances import IdleStop, Policy

BEGAN = datetime(2026, 3, 10, 2, tzinfo=UTC)
AFTER = Policy(IdleStop.AFTER, 600)
SOURCES = ("cards", "cpu", "disk", "network", "ssh", "jupyter")


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def judged(policy: Policy, now: float, *evidence: tuple[str, float], seen: float | None = None) -> Idleness:
    signs = [Evidence(source, at(last)) for source, last in evidence]
    heard = at(now if seen is None else seen)
    return judge(policy, 1800, BEGAN, heard, signs, at(now))


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        (Policy(IdleStop.UNSET), None),
        (Policy(IdleStop.OFF), None),
        (Policy(IdleStop.DEFAULT), 1800),
        (Policy(IdleStop.AFTER, 0), SETTLE_SECONDS),
        (Policy(IdleStop.AFTER, 7200), 7200),
    ],
)
def test_each_value_has_its_own_limit(policy: Policy, limit: int | None) -> None:
    assert idle_limit_seconds(policy, 1800) == limit


@pytest.mark.parametrize(
    ("now", "evidence", "verdict"),
    [
        (30, (), Verdict.ACTIVE),
        (100, (), Verdict.IDLE),
        (479, (), Verdict.IDLE),
        (480, (), Verdict.WARNED),
        (599, (), Verdict.WARNED),
        (600, (), Verdict.DUE),
        (600, (("disk", 590),), Verdict.ACTIVE),
        (600, (("ssh", 10), ("cards", 20), ("cpu", 500)), Verdict.IDLE),
        (1100, (("ssh", 10), ("cpu", 500)), Verdict.DUE),
    ],
)
def test_the_newest_sign_of_any_source_counts(
    now: float, evidence: tuple[tuple[str, float], ...], verdict: Verdict
) -> None:
    assert judged(AFTER, now, *evidence).verdict is verdict


def test_without_fresh_evidence_nothing_is_known() -> None:
    assert judged(AFTER, 5000, seen=5000 - FRESH_SECONDS).verdict is Verdict.DUE
    assert judged(AFTER, 5000, seen=5000 - FRESH_SECONDS - 1).verdict is Verdict.UNKNOWN
    assert judge(AFTER, 1800, BEGAN, None, (), at(5000)).verdict is Verdict.UNKNOWN


def test_a_change_of_what_is_wanted_begins_the_clock_anew() -> None:
    changed = Policy(IdleStop.AFTER, 600, changed_at=at(7000))
    assert judged(changed, 7100).verdict is Verdict.IDLE
    assert judged(changed, 7600).verdict is Verdict.DUE


evidence_lists = st.lists(st.tuples(st.sampled_from(SOURCES), st.floats(0, 10_000)), max_size=6)
limits = st.integers(0, 9_000)


@given(evidence_lists, limits, st.floats(0, 10_000))
def test_it_is_due_only_after_the_whole_limit_without_any_sign(
    evidence: list[tuple[str, float]], limit: int, now: float
) -> None:
    found = judged(Policy(IdleStop.AFTER, limit), now, *evidence)
    newest = min(now, max([0.0, *(last for _, last in evidence)]))
    assert found.since == at(newest)
    assert (found.verdict is Verdict.DUE) == (now - newest >= max(SETTLE_SECONDS, limit))
    if found.verdict is Verdict.WARNED:
        assert now - newest >= WARN_SHARE * max(SETTLE_SECONDS, limit)


@given(
    evidence_lists, st.tuples(st.sampled_from(SOURCES), st.floats(0, 10_000)), limits, st.floats(0, 10_000)
)
def test_more_evidence_never_makes_it_more_idle(
    evidence: list[tuple[str, float]], more: tuple[str, float], limit: int, now: float
) -> None:
    order = [Verdict.ACTIVE, Verdict.IDLE, Verdict.WARNED, Verdict.DUE]
    policy = Policy(IdleStop.AFTER, limit)
    before, after = judged(policy, now, *evidence), judged(policy, now, *evidence, more)
    assert order.index(after.verdict) <= order.index(before.verdict)
    assert after.since >= before.since


@given(evidence_lists, st.sampled_from([IdleStop.UNSET, IdleStop.OFF]), st.floats(0, 10_000_000))
def test_off_and_unset_never_stop_anything(
    evidence: list[tuple[str, float]], idle_stop: IdleStop, now: float
) -> None:
    found = judged(Policy(idle_stop), now, *evidence)
    assert found.stops_at is None and found.verdict in (Verdict.ACTIVE, Verdict.IDLE)
