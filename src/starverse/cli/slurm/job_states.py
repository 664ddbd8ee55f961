"""Slurm's names for what happens to a job, from the states and reasons of our API.

The API's enums are open: a word that is not in a table comes through in Slurm's spelling (``CamelCase``).
"""

from __future__ import annotations

COMPACT = {
    "PENDING": "PD",
    "RUNNING": "R",
    "SUSPENDED": "S",
    "COMPLETED": "CD",
    "CANCELLED": "CA",
    "FAILED": "F",
    "TIMEOUT": "TO",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "BOOT_FAIL": "BF",
    "DEADLINE": "DL",
    "OUT_OF_MEMORY": "OOM",
    "COMPLETING": "CG",
    "CONFIGURING": "CF",
    "RESIZING": "RS",
    "RESV_DEL_HOLD": "RD",
    "REQUEUED": "RQ",
    "REQUEUE_FED": "RF",
    "REQUEUE_HOLD": "RH",
    "REVOKED": "RV",
    "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE",
    "STAGE_OUT": "SO",
    "STOPPED": "ST",
}
"""Extended to compact form, in Slurm's order (squeue manual page, Job State Codes)."""

LIVE = frozenset({"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "SIGNALING", "RESIZING"})
"""What squeue lists without ``--states``."""

_ENDED = {
    "succeeded": "COMPLETED",
    "cancelled": "CANCELLED",
    "failed": "FAILED",
}
_FAILED_FOR = {
    "time_limit": "TIMEOUT",
    "out_of_memory": "OUT_OF_MEMORY",
    "node_lost": "NODE_FAIL",
    "reclaimed": "PREEMPTED",
    "no_requeue": "PREEMPTED",
    "start_failed": "BOOT_FAIL",
    "cancelled": "CANCELLED",
    "cost_max": "CANCELLED",
}
_WAITING_FOR = {
    "new": "None",
    "starting": "None",
    "no_cards": "Resources",
    "fragmented": "Resources",
    "behind_others": "Priority",
    "shadow_start": "Priority",
    "dependency": "Dependency",
    "begin_time": "BeginTime",
    "array_limit": "JobArrayTaskLimit",
}
_ENDED_FOR = {
    "exit_code": "NonZeroExitCode",
    "signal": "RaisedSignal",
    "time_limit": "TimeLimit",
    "out_of_memory": "OutOfMemory",
    "dependency_never": "DependencyNeverSatisfied",
    "impossible": "BadConstraints",
    "start_failed": "JobLaunchFailure",
    "completed": "None",
    "cancelled": "None",
}


def slurm_state(state: str, reason: str = "", phase: str = "") -> str:
    """The extended state of a job: ``phase`` is the state of its open allocation."""
    if state == "queued":
        return "PENDING"
    if state == "running":
        return {"placed": "CONFIGURING", "starting": "CONFIGURING", "stopping": "COMPLETING"}.get(
            phase, "RUNNING"
        )
    if state in {"failed", "cancelled"} and reason in _FAILED_FOR:
        return _FAILED_FOR[reason]
    return _ENDED.get(state, state.upper())


def slurm_state_of_run(cause: str) -> str:
    """The extended state of one ended allocation, as ``sacct --duplicates`` has it; ``""``: not ended."""
    known = {"": "RUNNING", "completed": "COMPLETED", "user_code": "FAILED", "card_fault": "NODE_FAIL"}
    return known.get(cause) or _FAILED_FOR.get(cause, "CANCELLED" if cause in _STOPPED_FOR else "FAILED")


_STOPPED_FOR = frozenset({"money", "window", "cost_max"})


def slurm_reason(reason: str) -> str:
    """The reason column: Slurm's word where it has one, else ours in its spelling (``NoMoney``)."""
    if not reason:
        return "None"
    known = _WAITING_FOR.get(reason) or _ENDED_FOR.get(reason)
    return known or "".join(part.capitalize() for part in reason.split("_"))


def parse_states(text: str) -> tuple[frozenset[str] | None, str]:
    """States of ``--states``: names or codes, any case; ``None``: all. The second part says what is wrong."""
    if text.strip().lower() == "all":
        return None, ""
    by_code = {code: name for name, code in COMPACT.items()}
    found: set[str] = set()
    for word in text.split(","):
        name = word.strip().upper()
        name = by_code.get(name, name)
        if name not in COMPACT:
            valid = ",".join(COMPACT)
            return (
                frozenset(),
                f"Invalid job state specified: {word.strip()}\nValid job states include: {valid}",
            )
        found.add(name)
    return frozenset(found), ""
