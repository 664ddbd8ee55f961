"""Jobs: submit, list, look at, end, go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Body, Query, Response

from starverse.app import jobs, signalling
from starverse.app.views import JobFilter
from starverse.domain.errors import InvariantBroken
from starverse.domain.workloads.signals import SignalTo
from starverse.domain.workloads.states import JobState
from starverse.http.routing import make_router
from starverse.http.schemas_jobs import CancelIn, JobOut, LintOut, SubmitIn, SubmittedOut, WhyOut
from starverse.http.security import AnyCaller, OnceDep, PlatformDep
from starverse.http.shapes import LIMIT_DEFAULT, Instant, Items, LimitParam, written

router = make_router("jobs", "/jobs")

StateParam = Literal["queued", "running", "succeeded", "failed", "cancelled", "open"]
_OPEN = (JobState.QUEUED, JobState.RUNNING)


@router.post("", status_code=201, response_model=SubmittedOut, responses={200: {"model": LintOut}})
def submit_job(body: SubmitIn, platform: PlatformDep, identity: AnyCaller, once: OnceDep) -> Response:
    """Queue a job, or all tasks of an array; with ``lint`` say what would happen and its price (200)."""
    result = jobs.submit(platform, identity, replace(body.request(), once=once))
    if body.lint:
        return written(LintOut.of(result), 200)
    if result.job is None:
        raise InvariantBroken("A submission made no job.")
    return written(SubmittedOut.made(result, result.job), 201)


@router.get("")
def list_jobs(
    platform: PlatformDep,
    identity: AnyCaller,
    state: Annotated[list[StateParam] | None, Query(description="`open`: queued and running")] = None,
    name: Annotated[str | None, Query(max_length=1024)] = None,
    label: Annotated[str | None, Query(max_length=1024, description="Cost label (`--account`)")] = None,
    array: Annotated[int | None, Query(ge=1, le=2**31, description="All tasks of this array")] = None,
    since: Annotated[Instant | None, Query(description="Jobs that existed at or after this")] = None,
    until: Annotated[Instant | None, Query(description="Jobs that existed before this")] = None,
    all_teams: Annotated[bool, Query(description="Of all teams (operators)")] = False,
    limit: Annotated[LimitParam, Query()] = LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Items[JobOut]:
    """The team's jobs, newest first; array tasks are items of their own."""
    states: list[JobState] = []
    for wanted in state or ():
        states += _OPEN if wanted == "open" else (JobState(wanted),)
    page = jobs.list_jobs(
        platform,
        identity,
        JobFilter(
            states=tuple(dict.fromkeys(states)),
            name=name,
            label=label,
            array=array,
            since=since,
            until=until,
            all_teams=all_teams,
            limit=limit,
            cursor=cursor,
        ),
    )
    return Items[JobOut](items=[JobOut.made(view) for view in page.items], next_cursor=page.next_cursor)


@router.get("/{ref}")
def get_job(ref: str, platform: PlatformDep, identity: AnyCaller) -> JobOut:
    """A job with its runs; ``ref`` is a number, ``number_index`` or an id."""
    return JobOut.made(jobs.get(platform, identity, ref))


@router.get("/{ref}/why")
def why_job(ref: str, platform: PlatformDep, identity: AnyCaller) -> WhyOut:
    """Why it waits, what would help, and when it could start."""
    return WhyOut.model_validate(jobs.why(platform, identity, ref))


@router.get("/{ref}/record")
def get_run_record(ref: str, platform: PlatformDep, identity: AnyCaller) -> dict[str, Any]:
    """Everything needed to reproduce the result."""
    return jobs.record(platform, identity, ref)


@router.post("/{ref}:cancel", status_code=202)
def cancel_job(
    ref: str,
    platform: PlatformDep,
    identity: AnyCaller,
    body: Annotated[CancelIn | None, Body()] = None,
) -> JobOut:
    """End a job for good: at once while it waits, with TERM and then KILL while it runs. With ``signal`` only
    send that signal to its processes (KILL ends it)."""
    if body is not None and body.signal is not None:
        to = SignalTo(body.to)
        return JobOut.made(signalling.send_signal(platform, identity, ref, body.signal, to))
    return JobOut.made(jobs.cancel(platform, identity, ref))


@router.post("/{ref}:resume", status_code=202)
def resume_job(ref: str, platform: PlatformDep, identity: AnyCaller) -> JobOut:
    """Go on with a job that ended, from its newest verified checkpoint."""
    return JobOut.made(jobs.resume(platform, identity, ref))
