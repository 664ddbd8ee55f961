"""Submitting, watching and ending jobs; their logs and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

from starverse.client.errors import ClientError
from starverse.client.follow import Event, follow
from starverse.client.packing import FolderLimits, PackedFolder
from starverse.client.remote_files import HasFiles
from starverse.client.shapes import Job, Limits, Lint, Submitted, Why
from starverse.client.transport import Call, Transport, new_key
from starverse.client.waiting import Patience, wait_until

ENDED_STATES = frozenset({"succeeded", "failed", "cancelled"})
UPLOAD_TIMEOUT_SECONDS = 600.0
LOG_PIECE_BYTES = 256 * 1024
CHARACTER_BYTES_MAX = 4
"""A piece may be shorter by less than this: a character is not cut in two."""
PATIENCE = Patience(pause_seconds_first=0.3, pause_seconds_max=3.0)


@dataclass(frozen=True, slots=True)
class Submission:
    """A script as the caller gave it. ``argv``: the raw options of sbatch, without the script's name;
    ``arguments``: what the script is called with; ``environment``: only what is meant to be sent."""

    script: str
    script_name: str
    argv: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    folder_id: str | None = None
    submit_dir: str = ""

    def body(self, *, lint: bool) -> dict[str, Any]:
        return {
            "script": self.script,
            "script_name": self.script_name,
            "argv": list(self.argv),
            "arguments": list(self.arguments),
            "environment": self.environment,
            "folder_id": self.folder_id,
            "submit_dir": self.submit_dir,
            "lint": lint,
        }


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; empty: all of the team, newest first. ``open`` is queued and running."""

    states: tuple[str, ...] = ()
    name: str | None = None
    label: str | None = None
    array: str | None = None
    since: str | None = None
    until: str | None = None
    all_teams: bool = False


class Jobs(HasFiles):
    """Jobs are named by number (``123``, array task ``123_4``) or id."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def lint(self, submission: Submission, *, when: bool = False) -> Lint:
        """What a submit would do and cost, and ``when`` it would start; creates nothing."""
        body = submission.body(lint=True) | ({"when": True} if when else {})
        return cast(Lint, self._transport.send(Call("POST", "/jobs", body=body)))

    def submit(self, submission: Submission, *, key: str | None = None) -> Submitted:
        call = Call("POST", "/jobs", body=submission.body(lint=False), key=key or new_key())
        return cast(Submitted, self._transport.send(call))

    def folder_limits(self) -> FolderLimits:
        """What the server says of folders; the usual limits where it is too old to say."""
        try:
            told = cast(Limits, self._transport.send(Call("GET", "/limits")))
        except ClientError as error:
            if error.code == "not_found":
                return FolderLimits()
            raise
        return FolderLimits(told["folder_bytes_max"], told["folder_levels_max"], told["path_bytes_max"])

    def send_folder(self, folder: PackedFolder) -> bool:
        """Bring a packed folder to the platform; ``False`` when it was there already and nothing was sent."""
        path = f"/folders/{folder.folder_id}"
        if self._transport.exists(Call("HEAD", path)):
            return False
        headers = {"Content-Type": "application/gzip"}
        self._transport.send(
            Call("PUT", path, file=folder.file, headers=headers, timeout_seconds=UPLOAD_TIMEOUT_SECONDS)
        )
        return True

    def list(self, which: JobFilter | None = None, *, items_max: int | None = None) -> Iterator[Job]:
        wanted = which or JobFilter()
        query = {
            "state": wanted.states,
            "name": wanted.name,
            "label": wanted.label,
            "array": wanted.array,
            "since": wanted.since,
            "until": wanted.until,
            "all_teams": wanted.all_teams or None,
        }
        for item in self._transport.pages(Call("GET", "/jobs", query), items_max=items_max):
            yield cast(Job, item)

    def get(self, ref: str) -> Job:
        """The job with its ``allocations``; for the number of an array also its ``tasks``."""
        return cast(Job, self._transport.send(Call("GET", _job(ref))))

    def why(self, ref: str) -> Why:
        return cast(Why, self._transport.send(Call("GET", f"{_job(ref)}/why")))

    def record(self, ref: str) -> dict[str, Any]:
        return self._transport.send(Call("GET", f"{_job(ref)}/record"))

    def cancel(self, ref: str, *, signal: str | None = None, to: str = "steps") -> dict[str, Any]:
        """End a job, or with ``signal`` only send that signal: to all but the batch shell (``steps``), to the
        shell alone (``batch``), or to ``all``."""
        body = {} if signal is None else {"signal": signal} | ({} if to == "steps" else {"to": to})
        return self._transport.send(Call("POST", f"{_job(ref)}:cancel", body=body))

    def resume(self, ref: str) -> Job:
        return cast(Job, self._transport.send(Call("POST", f"{_job(ref)}:resume")))

    def log_text(self, ref: str, *, attempt: int | None = None, stream: str = "out") -> Iterator[str]:
        """The log as it stands now, piece by piece; ``attempt`` ``None``: of all runs in order.

        Ends at a piece that is not full, so that a job which prints all the time is not followed.
        """
        newest = attempt
        if attempt is None:
            newest = int(self._log_page(ref, None, stream, 0).get("attempt") or 0)
        for each in range(attempt or 1, (newest or 0) + 1):
            offset = 0
            while True:
                page = self._log_page(ref, each, stream, offset)
                if page.get("text"):
                    yield str(page["text"])
                following = int(page.get("next_offset") or 0)
                gap = page.get("gap") or {}
                if following - max(offset, int(gap.get("end") or 0)) < LOG_PIECE_BYTES - CHARACTER_BYTES_MAX:
                    break
                offset = following

    def _log_page(self, ref: str, attempt: int | None, stream: str, offset: int) -> dict[str, Any]:
        query = {"attempt": attempt, "stream": stream, "offset": offset, "limit": LOG_PIECE_BYTES}
        return self._transport.send(Call("GET", f"{_job(ref)}/logs", query))

    def follow_log(
        self,
        ref: str,
        *,
        attempt: int | None = None,
        stream: str = "out",
        last_event_id: str | None = None,
        on_break: Callable[[ClientError], None] = lambda error: None,
    ) -> Iterator[Event]:
        """The log as it grows, to the job's end: from its start, from a run, or after an event."""
        call = Call("GET", f"{_job(ref)}/logs:follow", {"attempt": attempt, "stream": stream})
        return follow(self._transport, call, last_event_id=last_event_id, on_break=on_break)

    def wait(self, ref: str, *, on_break: Callable[[ClientError], None] = lambda error: None) -> Job:
        """The job once it has ended; asks again and again, also while the server is away for a while."""
        return wait_until(
            self._transport,
            lambda: self.get(ref),
            lambda job: job["state"] in ENDED_STATES,
            PATIENCE,
            on_break=on_break,
        )

    def wait_all(
        self, ref: str, *, on_break: Callable[[ClientError], None] = lambda error: None
    ) -> Sequence[Job]:
        """The job, or every task of the array whose number ``ref`` is, once all have ended."""
        tasks = self.tasks(ref)
        if not tasks:
            return [self.wait(ref, on_break=on_break)]
        return [self.wait(task["id"], on_break=on_break) for task in tasks]

    def tasks(self, ref: str) -> Sequence[Job]:
        """The tasks of the array with this number, by index; none where it is not an array's number."""
        if not ref.isdecimal() or not self.get(ref).get("tasks"):
            return []
        found = [job for job in self.list(JobFilter(array=ref)) if job.get("array_number") == int(ref)]
        return sorted(found, key=lambda job: job.get("array_index") or 0)

    def _place(self, ref: str) -> str:
        return _job(ref)


def _job(ref: str) -> str:
    return f"/jobs/{quote(ref, safe='')}"
