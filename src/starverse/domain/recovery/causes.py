"""Why an allocation ended: from the launcher's last report and what the platform did.

After a notice the exit code is an answer to it (architecture.md, Notice): 0 means that the work is done,
anything else that it is to go on elsewhere. Without one it speaks of the script itself.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass

from starverse.domain.workloads.launch import EXIT_FOR_REQUEUE, NODE_DOWN, NODE_LOST, LauncherState
from starverse.domain.workloads.reasons import EndCause, NoticeReason

_BY_NOTICE: Mapping[NoticeReason, EndCause] = {
    NoticeReason.RECLAIM: EndCause.RECLAIMED,
    NoticeReason.CARD_FAULT: EndCause.CARD_FAULT,
    NoticeReason.NO_MONEY: EndCause.MONEY,
    NoticeReason.COST_MAX: EndCause.COST_MAX,
    NoticeReason.WINDOW_CLOSED: EndCause.WINDOW,
    NoticeReason.TIME_LIMIT: EndCause.TIME_LIMIT,
    NoticeReason.CANCEL: EndCause.CANCELLED,
}

_NOTICE_TEXTS: Mapping[NoticeReason, str] = {
    NoticeReason.RECLAIM: "its cards were reclaimed",
    NoticeReason.CARD_FAULT: "one of its cards is faulty",
    NoticeReason.NO_MONEY: "the wallet is empty",
    NoticeReason.COST_MAX: "its --cost-max is used up",
    NoticeReason.WINDOW_CLOSED: "its window closed",
    NoticeReason.TIME_LIMIT: "it reached its time limit",
    NoticeReason.CANCEL: "it was cancelled",
}


@dataclass(frozen=True, slots=True)
class EndFacts:
    """What is known of an end. ``state`` ``None``: its launcher never reported.

    ``notice_reason`` is why the platform (or the launcher by itself, out of funds or time) announced a
    stop; it counts only where the report shows that the notice had arrived. ``cancel_requested``: a
    cancel was asked for and sent. ``lost``: the lease ran out without a final report. ``card_fault`` is
    the text about a card of the allocation that turned out to be faulty, ``""`` when none did.
    ``signal_asked``: the job asked for a signal before its time limit (``--signal``). ``interactive``: an
    instance, whose work is never done: after a notice no exit code says so.
    """

    state: LauncherState | None
    notice_reason: NoticeReason | None = None
    cancel_requested: bool = False
    lost: bool = False
    card_fault: str = ""
    signal_asked: bool = False
    interactive: bool = False


def end_cause(facts: EndFacts) -> tuple[EndCause, str]:
    """The cause, and the same in words with figures."""
    state = facts.state
    if state is None or state.ready_at is None:
        return _never_ready(facts, state)
    if facts.lost:
        return EndCause.NODE_LOST, facts.card_fault or "its launcher did not come back in time"
    if state.stopped_by == NODE_LOST:
        return EndCause.NODE_LOST, facts.card_fault or state.failure
    told = bool(state.stopped_by or state.notice_reason) and not _was_only_signalled(facts, state)
    if facts.cancel_requested and told:
        return EndCause.CANCELLED, _NOTICE_TEXTS[NoticeReason.CANCEL]
    goes_down = state.stopped_by == NODE_DOWN
    notice = _notice(facts, state) if told and not goes_down else None
    done = state.exit_code == 0 and not (facts.interactive and (notice is not None or goes_down))
    if done and notice is not NoticeReason.CANCEL:
        return EndCause.COMPLETED, "it ended by itself with exit code 0"
    if facts.card_fault:
        return EndCause.CARD_FAULT, facts.card_fault
    if goes_down:
        text = exit_text(state.exit_code, state.exit_signal)
        return EndCause.NODE_LOST, f"its node went down, or was set down by its operators; {text}"
    if notice is not None:
        return _BY_NOTICE[notice], f"{_NOTICE_TEXTS[notice]}; {exit_text(state.exit_code, state.exit_signal)}"
    if state.out_of_memory:
        option = "--memory-gib" if facts.interactive else "--mem"
        return EndCause.OUT_OF_MEMORY, f"it used more memory than it asked for; ask for more with {option}"
    if told or (state.exit_code is None and state.exit_signal is None):
        return EndCause.PLATFORM, "the platform stopped it"
    text = exit_text(state.exit_code, state.exit_signal)
    return EndCause.USER_CODE, f"{text}: {state.failure}" if state.failure else text


def _was_only_signalled(facts: EndFacts, state: LauncherState) -> bool:
    """Nothing but the signal that the job itself asked for had come: it ended before its time limit."""
    return (
        facts.signal_asked
        and state.stopped_by == "time_limit"
        and state.ended_at is not None
        and state.notice_deadline is not None
        and state.ended_at < state.notice_deadline
        and (state.exit_code is not None or state.exit_signal is not None)
    )


def exit_text(code: int | None, signal_number: int | None) -> str:
    """How the script ended, in words: ``exit code 1``, ``killed by SIGKILL``."""
    if signal_number is not None:
        try:
            return f"killed by {signal.Signals(signal_number).name}"
        except ValueError:
            return f"killed by signal {signal_number}"
    if code == EXIT_FOR_REQUEUE:
        return f"exit code {code} (asks to be queued again)"
    return "no exit reported" if code is None else f"exit code {code}"


def _never_ready(facts: EndFacts, state: LauncherState | None) -> tuple[EndCause, str]:
    """It ended before the first exec of the script: nothing is charged."""
    if facts.cancel_requested:
        return EndCause.CANCELLED, "it was cancelled while starting"
    if facts.card_fault:
        return EndCause.START_FAILED, facts.card_fault
    if state is not None and state.failure:
        return EndCause.START_FAILED, state.failure
    text = "its launcher ended before the script started" if state else "no launcher answered"
    return EndCause.START_FAILED, text


def _notice(facts: EndFacts, state: LauncherState) -> NoticeReason | None:
    """The notice that the launcher acted on; its own word where the platform gave none."""
    if facts.notice_reason is not None:
        return facts.notice_reason
    told = next((reason for reason in NoticeReason if reason.value == state.notice_reason), None)
    return told or {"time_limit": NoticeReason.TIME_LIMIT, "unfunded": NoticeReason.NO_MONEY}.get(
        state.stopped_by
    )
