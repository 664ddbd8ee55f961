"""Dependencies, times, windows, price, money: who may start, who waits, who never will."""

from __future__ import annotations

from fractions import Fraction

import pytest

from starverse.domain.money import Money
from starverse.domain.scheduling.eligibility import Facts, TaskFact, array_block, blocked
from starverse.domain.scheduling.snapshot import Blocked, Never
from starverse.domain.workloads.reasons import JobEndReason, WaitReason
from starverse.domain.workloads.specs import Dependencies, Dependency, DependencyKind
from starverse.domain.workloads.states import JobState
from starverse.testing.snapshots import NOW, at

K, S = DependencyKind, JobState
QUEUED = TaskFact(S.QUEUED)
RUNNING = TaskFact(S.RUNNING, first_started_at=at(-600))
DONE = TaskFact(S.SUCCEEDED, first_started_at=at(-600), ended_at=at(-60))
FAILED = TaskFact(S.FAILED, first_started_at=at(-600), ended_at=at(-60))
CANCELLED_UNRUN = TaskFact(S.CANCELLED, ended_at=at(-60))


def one(kind: DependencyKind, *tasks: TaskFact, minutes: int = 0) -> Facts:
    condition = Dependency(kind, 7, delay_minutes=minutes)
    return Facts(dependencies=Dependencies((condition,)), dependency_tasks={7: tasks} if tasks else {})


@pytest.mark.parametrize(
    ("kind", "tasks", "expected"),
    [
        (K.AFTER, (QUEUED,), "waits"),
        (K.AFTER, (RUNNING,), "starts"),
        (K.AFTER, (DONE,), "starts"),
        (K.AFTER, (CANCELLED_UNRUN,), "starts"),
        (K.AFTER, (RUNNING, QUEUED), "waits"),
        (K.AFTERANY, (RUNNING,), "waits"),
        (K.AFTERANY, (DONE,), "starts"),
        (K.AFTERANY, (FAILED,), "starts"),
        (K.AFTERANY, (DONE, RUNNING), "waits"),
        (K.AFTEROK, (QUEUED,), "waits"),
        (K.AFTEROK, (DONE,), "starts"),
        (K.AFTEROK, (FAILED,), "never"),
        (K.AFTEROK, (CANCELLED_UNRUN,), "never"),
        (K.AFTEROK, (FAILED, RUNNING), "never"),
        (K.AFTEROK, (DONE, RUNNING), "waits"),
        (K.AFTERNOTOK, (RUNNING,), "waits"),
        (K.AFTERNOTOK, (FAILED,), "starts"),
        (K.AFTERNOTOK, (CANCELLED_UNRUN,), "starts"),
        (K.AFTERNOTOK, (DONE,), "never"),
        (K.AFTERNOTOK, (DONE, FAILED), "starts"),
        (K.AFTERNOTOK, (FAILED, RUNNING), "waits"),
        (K.AFTEROK, (), "never"),
    ],
)
def test_one_condition(kind: DependencyKind, tasks: tuple[TaskFact, ...], expected: str) -> None:
    answer = blocked(one(kind, *tasks), NOW)
    got = "starts" if answer is None else "never" if isinstance(answer, Never) else "waits"
    assert got == expected
    if isinstance(answer, Never):
        assert answer.reason is JobEndReason.DEPENDENCY_NEVER
    if isinstance(answer, Blocked):
        assert answer.reason is WaitReason.DEPENDENCY


def test_minutes_after_the_start_are_waited_for() -> None:
    answer = blocked(one(K.AFTER, RUNNING, minutes=11), NOW)
    assert isinstance(answer, Blocked)
    assert answer.until == at(60)
    assert blocked(one(K.AFTER, RUNNING, minutes=10), NOW) is None


def test_one_task_of_an_array_can_be_named() -> None:
    tasks = (TaskFact(S.RUNNING, 1, at(-5)), TaskFact(S.SUCCEEDED, 2, at(-9), at(-1)))
    for index, starts in ((1, False), (2, True)):
        condition = Dependency(K.AFTEROK, 7, array_index=index)
        facts = Facts(dependencies=Dependencies((condition,)), dependency_tasks={7: tasks})
        assert (blocked(facts, NOW) is None) is starts


@pytest.mark.parametrize(
    ("first", "second", "any_is_enough", "expected"),
    [
        (DONE, RUNNING, False, WaitReason.DEPENDENCY),
        (DONE, RUNNING, True, None),
        (FAILED, RUNNING, False, JobEndReason.DEPENDENCY_NEVER),
        (FAILED, RUNNING, True, WaitReason.DEPENDENCY),
        (FAILED, FAILED, True, JobEndReason.DEPENDENCY_NEVER),
        (DONE, DONE, False, None),
    ],
)
def test_commas_mean_all_and_question_marks_any(
    first: TaskFact, second: TaskFact, any_is_enough: bool, expected: object
) -> None:
    conditions = (Dependency(K.AFTEROK, 7), Dependency(K.AFTEROK, 8))
    facts = Facts(Dependencies(conditions, any_is_enough), {7: (first,), 8: (second,)})
    answer = blocked(facts, NOW)
    assert (None if answer is None else answer.reason) == expected


def test_a_singleton_waits_for_its_elders() -> None:
    condition = Dependencies((Dependency(K.SINGLETON),))
    answer = blocked(Facts(condition, singletons_open=(12, 9)), NOW)
    assert isinstance(answer, Blocked)
    assert answer.message == "waits for job 9 of the same name to end"
    assert blocked(Facts(condition), NOW) is None


@pytest.mark.parametrize(
    ("facts", "reason", "until", "says"),
    [
        (Facts(begin=at(1)), WaitReason.BEGIN_TIME, at(1), "begins at 2026-03-10T02:00:01Z"),
        (Facts(begin=at(0)), None, None, ""),
        (
            Facts(retry_at=at(20), retry_message="start 1 of at most 5 failed: no image"),
            WaitReason.START_FAILED,
            at(20),
            "no image; tried again at 2026-03-10T02:00:20Z",
        ),
        (
            Facts(window="night", window_open=False, window_opens_at=at(9)),
            WaitReason.WINDOW_CLOSED,
            at(9),
            "window night is closed; it opens at",
        ),
        (Facts(window="night", window_open=True), None, None, ""),
        (
            Facts(rate=Fraction(500_001), price_max=Money(500_000)),
            WaitReason.PRICE_ABOVE_MAX,
            None,
            "the price is CNY 0.500001 per card-hour now, its limit CNY 0.50",
        ),
        (Facts(rate=Fraction(500_000), price_max=Money(500_000)), None, None, ""),
        (
            Facts(money_free=Money(9_000_000), money_needed=Money(13_280_000)),
            WaitReason.NO_MONEY,
            None,
            "the first hour costs CNY 13.28, CNY 9.00 is free",
        ),
        (Facts(money_free=Money(5), money_needed=Money(5)), None, None, ""),
        (Facts(disk_reserve_reached=True), WaitReason.DISK_RESERVE, None, "reserve"),
    ],
)
def test_what_keeps_a_job_from_starting(
    facts: Facts, reason: WaitReason | None, until: object, says: str
) -> None:
    answer = blocked(facts, NOW)
    if reason is None:
        assert answer is None
    else:
        assert isinstance(answer, Blocked)
        assert (answer.reason, answer.until) == (reason, until)
        assert says in answer.message


@pytest.mark.parametrize(
    ("active", "limit", "free"), [(1, 2, True), (2, 2, False), (99, None, True), (0, 0, False)]
)
def test_the_array_limit(active: int, limit: int | None, free: bool) -> None:
    assert (array_block(active, limit) is None) is free
