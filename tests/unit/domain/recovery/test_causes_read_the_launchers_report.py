"""Why an allocation ended, case by case."""

from __future__ import annotations

import signal
from dataclasses import replace
from itertools import product

import pytest

from starverse.domain.recovery.causes import EndFacts, end_cause, exit_text
from starverse.domain.workloads.launch import NODE_DOWN, LauncherState
from starverse.domain.workloads.reasons import EndCause, NoticeReason

C, N = EndCause, NoticeReason
ENDED = LauncherState("a", 1, "ended", "boot", alive_at=100.0, ready_at=10.0, ended_at=99.0)


def report(
    code: int | None = None, sig: int | None = None, stopped_by: str = "", **changes: object
) -> LauncherState:
    return replace(ENDED, exit_code=code, exit_signal=sig, stopped_by=stopped_by, **changes)  # type: ignore[arg-type]


def noticed(code: int | None = None, sig: int | None = None) -> LauncherState:
    return report(code, sig, stopped_by="notice", notice_reason="reclaim")


SIGNALLED = report(3, stopped_by="time_limit", notice_reason="time_limit", notice_deadline=120.0)

CASES: dict[str, tuple[EndFacts, EndCause]] = {
    "exit 0": (EndFacts(report(0)), C.COMPLETED),
    "exit 1": (EndFacts(report(1)), C.USER_CODE),
    "exit 99 without a notice": (EndFacts(report(99)), C.USER_CODE),
    "a signal of its own": (EndFacts(report(sig=11)), C.USER_CODE),
    "interpreter that is not there": (EndFacts(report(127, failure="interpreter x")), C.USER_CODE),
    "another node of it lost": (
        EndFacts(report(sig=15, stopped_by="node_lost", failure="the launcher on gpu002 was lost")),
        C.NODE_LOST,
    ),
    "another node of it lost, and it went on to exit 0": (
        EndFacts(report(0, stopped_by="node_lost", failure="the launcher on gpu002 was lost")),
        C.NODE_LOST,
    ),
    "another node's sandbox ended by itself": (
        EndFacts(report(sig=15, failure="gpu002: the sandbox of its ranks ended (signal 9)")),
        C.USER_CODE,
    ),
    "out of memory": (EndFacts(report(sig=9, out_of_memory=True)), C.OUT_OF_MEMORY),
    "out of memory without a signal": (EndFacts(report(137, out_of_memory=True)), C.OUT_OF_MEMORY),
    "exit 0 after a notice": (EndFacts(noticed(0), N.RECLAIM), C.COMPLETED),
    "exit 99 after a notice": (EndFacts(noticed(99), N.RECLAIM), C.RECLAIMED),
    "exit 1 after a notice": (EndFacts(noticed(1), N.RECLAIM), C.RECLAIMED),
    "killed after a notice": (EndFacts(noticed(sig=9), N.RECLAIM), C.RECLAIMED),
    "exit 1 before the notice arrived": (EndFacts(report(1), N.RECLAIM), C.USER_CODE),
    "time limit": (EndFacts(report(sig=15, stopped_by="time_limit"), N.TIME_LIMIT), C.TIME_LIMIT),
    "time limit by the launcher alone": (EndFacts(report(sig=15, stopped_by="time_limit")), C.TIME_LIMIT),
    "exit 3 on the signal it asked for, before its limit": (
        EndFacts(SIGNALLED, N.TIME_LIMIT, signal_asked=True),
        C.USER_CODE,
    ),
    "a crash on the signal it asked for": (
        EndFacts(replace(SIGNALLED, exit_code=None, exit_signal=11), N.TIME_LIMIT, signal_asked=True),
        C.USER_CODE,
    ),
    "exit 3 on a notice it did not ask for": (EndFacts(SIGNALLED, N.TIME_LIMIT), C.TIME_LIMIT),
    "exit 3 at its limit": (
        EndFacts(replace(SIGNALLED, ended_at=120.0), N.TIME_LIMIT, signal_asked=True),
        C.TIME_LIMIT,
    ),
    "cancelled after the signal it asked for": (
        EndFacts(replace(SIGNALLED, stopped_by="stop"), cancel_requested=True, signal_asked=True),
        C.CANCELLED,
    ),
    "reclaimed, and it asked for a signal": (
        EndFacts(noticed(3), N.RECLAIM, signal_asked=True),
        C.RECLAIMED,
    ),
    "done in time after the time limit's notice": (
        EndFacts(report(0, stopped_by="time_limit"), N.TIME_LIMIT),
        C.COMPLETED,
    ),
    "unfunded by the launcher alone": (EndFacts(report(99, stopped_by="unfunded")), C.MONEY),
    "unfunded since the window closed": (
        EndFacts(report(99, stopped_by="unfunded"), N.WINDOW_CLOSED),
        C.WINDOW,
    ),
    "no money": (EndFacts(noticed(99), N.NO_MONEY), C.MONEY),
    "cost limit": (EndFacts(noticed(99), N.COST_MAX), C.COST_MAX),
    "window closed": (EndFacts(noticed(99), N.WINDOW_CLOSED), C.WINDOW),
    "only the launcher's word for the notice": (
        EndFacts(report(1, stopped_by="notice", notice_reason="window_closed")),
        C.WINDOW,
    ),
    "cancelled": (EndFacts(report(sig=15, stopped_by="stop"), cancel_requested=True), C.CANCELLED),
    "cancelled, and exit 0 on TERM": (
        EndFacts(report(0, stopped_by="stop"), cancel_requested=True),
        C.CANCELLED,
    ),
    "cancelled by notice, exit 0": (
        EndFacts(report(0, stopped_by="notice", notice_reason="cancel"), N.CANCEL),
        C.CANCELLED,
    ),
    "done just before the cancel arrived": (EndFacts(report(0), cancel_requested=True), C.COMPLETED),
    "a faulty card": (EndFacts(report(1), card_fault="card 3: fell off the bus"), C.CARD_FAULT),
    "a faulty card under notice": (EndFacts(noticed(99), N.CARD_FAULT), C.CARD_FAULT),
    "done in spite of a faulty card": (EndFacts(report(0), card_fault="card 3"), C.COMPLETED),
    "lost": (EndFacts(ENDED, lost=True), C.NODE_LOST),
    "stopped by the platform for no reason on record": (
        EndFacts(report(sig=15, stopped_by="stop")),
        C.PLATFORM,
    ),
    "its node was set down": (EndFacts(report(sig=15, stopped_by=NODE_DOWN)), C.NODE_LOST),
    "its node was set down, and it said so itself": (EndFacts(report(5, stopped_by=NODE_DOWN)), C.NODE_LOST),
    "its node was set down just as it was done": (EndFacts(report(0, stopped_by=NODE_DOWN)), C.COMPLETED),
    "the node of an instance was set down, whose shell was polite": (
        EndFacts(report(0, stopped_by=NODE_DOWN), interactive=True),
        C.NODE_LOST,
    ),
    "its node was set down before its notice arrived": (
        EndFacts(report(sig=15, stopped_by=NODE_DOWN), N.RECLAIM),
        C.NODE_LOST,
    ),
    "cancelled, and its node was set down meanwhile": (
        EndFacts(report(sig=15, stopped_by=NODE_DOWN), cancel_requested=True),
        C.CANCELLED,
    ),
    "a faulty card, whose node was set down": (
        EndFacts(report(sig=15, stopped_by=NODE_DOWN), card_fault="card 3"),
        C.CARD_FAULT,
    ),
    "ended without an exit": (EndFacts(report()), C.PLATFORM),
    "failed to start": (EndFacts(report(ready_at=None, failure="no such image")), C.START_FAILED),
    "never claimed": (EndFacts(None), C.START_FAILED),
    "lost before it was ready": (EndFacts(report(ready_at=None), lost=True), C.START_FAILED),
    "cancelled while starting": (
        EndFacts(report(ready_at=None, stopped_by="stop"), cancel_requested=True),
        C.CANCELLED,
    ),
    "cancelled before a launcher answered": (EndFacts(None, cancel_requested=True), C.CANCELLED),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "_"))
def test_the_cause(case: str) -> None:
    facts, expected = CASES[case]
    cause, message = end_cause(facts)
    assert cause is expected
    assert message


def test_every_cause_is_reached() -> None:
    assert {cause for _, cause in CASES.values()} == set(EndCause)


def test_the_message_says_what_failed() -> None:
    assert end_cause(CASES["failed to start"][0])[1] == "no such image"
    assert end_cause(CASES["interpreter that is not there"][0])[1] == "exit code 127: interpreter x"
    assert end_cause(CASES["killed after a notice"][0])[1] == "its cards were reclaimed; killed by SIGKILL"


@pytest.mark.parametrize("notice", NoticeReason)
@pytest.mark.parametrize(("code", "sig"), [(1, None), (99, None), (None, 9), (None, 15)])
def test_no_notice_makes_a_failure_of_the_script(
    notice: NoticeReason, code: int | None, sig: int | None
) -> None:
    state = report(code, sig, stopped_by="notice", notice_reason=notice.value)
    assert end_cause(EndFacts(state, notice))[0] not in (C.USER_CODE, C.COMPLETED, C.PLATFORM)


def test_every_combination_of_facts_has_a_cause() -> None:
    states = [None, *(report(c, s, b) for c, s, b in product((None, 0, 1, 99), (None, 9), ("", "notice")))]
    for state, notice, cancel, lost in product(states, (None, *NoticeReason), (True, False), (True, False)):
        assert end_cause(EndFacts(state, notice, cancel, lost))[0] in EndCause


@pytest.mark.parametrize(
    ("code", "sig", "text"),
    [
        (0, None, "exit code 0"),
        (99, None, "exit code 99 (asks to be queued again)"),
        (None, signal.SIGSEGV, "killed by SIGSEGV"),
        (None, 77, "killed by signal 77"),
        (None, None, "no exit reported"),
    ],
)
def test_exits_in_words(code: int | None, sig: int | None, text: str) -> None:
    assert exit_text(code, sig) == text
