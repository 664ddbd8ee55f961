"""``job ls/show/why/logs/cancel/resume/record`` and ``queue``."""

from __future__ import annotations

import json
from typing import Any

import click

from starverse.cli.remote import exit_codes
from starverse.cli.remote.commands import Group, command, yes_option
from starverse.cli.remote.follow_log import print_log
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_fields, render_table
from starverse.cli.remote.wording import length, when
from starverse.client.shapes import Job, Why

DECLARED_MARK = "*: a declared card, lent without being there"
STATES = ("queued", "running", "succeeded", "failed", "cancelled")


@click.group("job", cls=Group, help="Jobs: list, look, follow, end, resume.")
def group() -> None:
    """Jobs: list, look, follow, end, resume."""


@command("List jobs, newest first.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES))
@click.option("--name", metavar="NAME")
@click.option("--label", metavar="LABEL", help="Jobs submitted with --account=LABEL.")
@click.option("--all-teams", is_flag=True, help="Of all your teams.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N")
def ls(
    session: Session,
    states: tuple[str, ...],
    name: str | None,
    label: str | None,
    all_teams: bool,
    limit: int,
) -> None:
    from starverse.client.jobs import JobFilter

    wanted = JobFilter(states=states, name=name, label=label, all_teams=all_teams)
    _print_jobs(session, list(session.client().jobs.list(wanted, items_max=limit)))


@command("List the jobs that wait or run, and why they wait.")
@click.option("--all-teams", is_flag=True, help="Of all your teams.")
def queue(session: Session, all_teams: bool) -> None:
    from starverse.client.jobs import JobFilter

    wanted = JobFilter(states=("queued", "running"), all_teams=all_teams)
    found = list(session.client().jobs.list(wanted))
    _print_jobs(session, found)
    waiting = next((job["number"] for job in found if job["state"] == "queued"), None)
    if waiting is not None:
        session.note(f"why, in words: starverse job why {waiting}")


def _print_jobs(session: Session, found: list[Job]) -> None:
    session.emit({"items": found}, lambda: jobs_table(found))


def jobs_table(found: list[Job]) -> str:
    """Jobs as the CLI lists them."""
    titles = columns("JOB", "NAME", "STATE", "TARIFF", "CARDS", "SUBMITTED", ">CNY", "WHY")
    rows = [
        (
            job["number"],
            job["name"],
            job["state"],
            job["tariff"],
            _cards(job),
            when(job["submitted_at"]),
            job.get("cost_so_far"),
            job.get("reason") if job["state"] != "running" else job.get("node_list"),
        )
        for job in found
    ]
    return render_table(titles, rows)


def _cards(job: Job) -> str:
    if not job["cards"]:
        return "none"
    nodes = f" on {job['nodes']} nodes" if job["nodes"] > 1 else ""
    declared = " (declared)" if job.get("cards_declared") else ""
    return f"{job['cards']} x {job['card'] or 'any'}{declared}{nodes}"


@command("Show a job: state, price, runs with their cards, cause and cost.")
@click.argument("job", metavar="JOB")
def show(session: Session, job: str) -> None:
    found = session.client().jobs.get(job)
    session.emit(dict(found), lambda: job_text(found))
    runs = found.get("allocations") or []
    if any(card.get("declared") for run in runs for card in run.get("cards") or ()):
        session.note(DECLARED_MARK)


def _numbers(job: Job) -> str:
    """The number, and for an array task the integer of its own beside it."""
    return f"{job['number']} ({job['own_number']})" if "_" in job["number"] else str(job["number"])


def job_text(job: Job) -> str:
    """A job as ``job show`` prints it."""
    checkpoint = job.get("checkpoint") or {}
    tasks = job.get("tasks")
    price = job.get("price") or {}
    ending = f"signal {job['exit_signal']}" if job.get("exit_signal") else job.get("exit_code")
    parts = [
        render_fields(
            [
                ("job", f"{_numbers(job)}  {job['name']}"),
                ("state", None if tasks else _state(job)),
                ("message", None if tasks else job.get("message")),
                ("tasks", [f"{count} {state}" for state, count in tasks.items()] if tasks else None),
                ("team", f"{job['team']} ({job['account']})"),
                ("cards", _cards(job)),
                ("tariff", job["tariff"]),
                ("price", f"CNY {price['hour']} per hour" if price.get("hour") else None),
                ("time limit", length(job["time_limit_seconds"])),
                ("submitted", when(job["submitted_at"])),
                ("begins", when(job.get("begin_at"))),
                ("waits for", job.get("dependency_text")),
                ("started", None if tasks else when(job.get("started_at"))),
                ("ended", None if tasks else when(job.get("ended_at"))),
                ("exit code", None if tasks else ending),
                ("nodes", None if tasks else job.get("node_list")),
                ("checkpoint", f"step {checkpoint['step']}" if checkpoint else None),
                ("progress", job.get("progress")),
                ("cost so far", f"CNY {job['cost_so_far']}" if job.get("cost_so_far") else None),
                ("lost work", length(job.get("lost_work_seconds"))),
                ("cost label", job.get("cost_label")),
                ("comment", job.get("comment")),
            ]
        )
    ]
    allocations = job.get("allocations") or []
    if allocations:
        titles = columns(">RUN", "STATE", "CAUSE", "CARDS", "READY", "ENDED", ">EXIT", ">CNY", ">LOST WORK")
        parts.append(render_table(titles, [_allocation(allocation) for allocation in allocations]))
    return "\n\n".join(parts)


def _state(job: Job) -> str:
    return job["state"] + (f" ({job['reason']})" if job.get("reason") else "")


def _allocation(allocation: Any) -> tuple[object, ...]:
    cards = allocation.get("cards") or []
    places = [f"{card['node']}:{card['index']}" + ("*" if card.get("declared") else "") for card in cards]
    signal = allocation.get("exit_signal")
    return (
        allocation["attempt"],
        allocation["state"],
        allocation.get("cause"),
        " ".join(places),
        when(allocation.get("ready_at")),
        when(allocation.get("ended_at")),
        f"signal {signal}" if signal else allocation.get("exit_code"),
        allocation.get("charged"),
        length(allocation.get("lost_work_seconds")),
    )


@command("Say why a job waits, with figures, and what would help.")
@click.argument("job", metavar="JOB")
def why(session: Session, job: str) -> None:
    found = session.client().jobs.why(job)
    session.emit(dict(found), lambda: why_text(found))


def why_text(found: Why) -> str:
    """The answer of ``job why``."""
    lines = [": ".join(filter(None, (found["reason"], found.get("message")))) or found["state"]]
    lines += [f"  {_fact(fact)}" for fact in found.get("facts") or ()]
    lines += [f"helps: {help_text}" for help_text in found.get("what_helps") or ()]
    earliest = when(found.get("earliest_start_at"))
    if earliest:
        lines.append(f"earliest start: {earliest}")
    estimate = found.get("start_estimate")
    if estimate:
        first, expected, last = (when(estimate[f"{name}_at"]) for name in ("earliest", "expected", "latest"))
        lines.append(f"will start about {expected}, between {first} and {last} (by how long jobs ran lately)")
    return "\n".join(lines)


def _fact(fact: object) -> str:
    if isinstance(fact, dict):
        return ", ".join(f"{name} {value}" for name, value in fact.items())
    return str(fact)


@command("Print a job's log; -f follows it to the end.")
@click.argument("job", metavar="JOB")
@click.option("--follow", "-f", is_flag=True)
@click.option(
    "--attempt", type=click.IntRange(1), metavar="N", help="Only this run; with -f from it on. Default: all."
)
@click.option("--stderr", is_flag=True, help="The file of --error, where the job has one.")
def logs(session: Session, job: str, follow: bool, attempt: int | None, stderr: bool) -> None:
    stream = "err" if stderr else "out"
    if not follow:
        pieces = session.client().jobs.log_text(job, attempt=attempt, stream=stream)
        if session.json:
            session.emit({"job": job, "stream": stream, "text": "".join(pieces)}, lambda: "")
            return
        for piece in pieces:
            session.write(piece)
        return
    try:
        end = print_log(session, job, attempt=attempt, stream=stream)
    except KeyboardInterrupt:
        session.note(f"\nnot following any more; job {job} goes on (end it: starverse job cancel {job})")
        session.exit_code = exit_codes.INTERRUPTED
        return
    if end.get("state"):
        session.note(f"job {job} {end['state']}")


@command("End jobs; what they have cost up to then stays charged.")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@click.option("--signal", metavar="NAME", help="Only send this signal, such as USR1, to what it runs.")
@click.option("--batch", is_flag=True, help="With --signal: to the batch shell alone.")
@yes_option()
def cancel(session: Session, jobs: tuple[str, ...], signal: str | None, batch: bool, yes: bool) -> None:
    from starverse.cli.remote.several import do_to_each

    if signal is None:
        session.confirm(f"End {', '.join(jobs)}?", yes=yes)
    to = "batch" if batch else "steps"
    cases = session.client().jobs

    def end(job: str) -> Any:
        answer = cases.cancel(job, signal=signal, to=to)
        session.note(f"sent {signal} to job {job}" if signal else f"cancelled job {job}")
        return answer

    done = do_to_each(jobs, end)
    done.emit(session, {"items": done.answers})


@command("Queue a job again from its newest verified checkpoint.")
@click.argument("job", metavar="JOB")
@yes_option()
def resume(session: Session, job: str, yes: bool) -> None:
    jobs = session.client().jobs
    before = jobs.get(job)
    hour = (before.get("resume_price") or before.get("price") or {}).get("hour")
    if hour:
        limit = length(before["time_limit_seconds"])
        session.note(f"price: CNY {hour} per hour ({before['tariff']}), for at most {limit}")
    session.confirm(f"Queue job {job} again?", yes=yes)
    found = jobs.resume(job)
    number = found["number"]
    session.emit(dict(found), lambda: str(number))
    again = "is tried again" if number == before["number"] else f"goes on with job {job}"
    session.note(f"job {number} {again}; watch it: starverse job logs -f {number}")


@command("Print the run record: what reproduces the run.")
@click.argument("job", metavar="JOB")
def record(session: Session, job: str) -> None:
    found = session.client().jobs.record(job)
    session.emit(found, lambda: json.dumps(found, ensure_ascii=False, indent=2))
    scaling = found.get("scaling") or {}
    if scaling.get("nodes", 1) > 1 and not session.json:
        session.note(f"scaling: {scaling['what']}")


for each in (ls, show, why, logs, cancel, resume, record):
    group.add_command(each)
