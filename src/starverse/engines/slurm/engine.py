"""Allocations as jobs of a Slurm cluster: one job each, pinned to its nodes, named by the allocation id.

Slurm's numbers are used again after a crash of its controller, so that the name is what counts. The folder
of an allocation lies on a file system that the nodes share, and is the truth about its launcher; the queue
is the truth about its cards: an allocation is over when its launcher said so *and* Slurm has no job of it
any more (COMPLETING is not free). Where Slurm does not answer, nothing is concluded.

Beside what :mod:`starverse.node.folder` names, an allocation's folder has::

    submitting     a submit was begun; with it alone nobody knows whether Slurm has the job
    slurm.json     Slurm's number, and when it was given
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from starverse.domain.workloads.launch import NODE_DOWN, NODE_LOST, LauncherState, LaunchSpec
from starverse.engines.base import Capabilities, EngineUnavailable, NodeReport, Observation, Presence
from starverse.engines.folders.engine import FolderEngine, OpenChannel, newer_state, read_report
from starverse.engines.folders.leftovers import finish_for_launcher, remove_folders, wait_until
from starverse.engines.folders.shims import write_shims
from starverse.engines.slurm.back_off import BackOff
from starverse.engines.slurm.batch import OUTPUT, Site, job_request
from starverse.engines.slurm.facts import JobRequest, SlurmJob, SlurmNode, SlurmUnavailable
from starverse.engines.slurm.nodes import our_nodes, report
from starverse.engines.slurm.settings import SlurmSettings, connect, unix_uid_of
from starverse.engines.slurm.transport import Transport
from starverse.engines.slurm.watch import QueueWatch, Snapshot
from starverse.node.folder import AllocationFolder, write_atomically

CANCEL_PATIENCE_SECONDS = 5.0
"""How long a cancel is waited for before the caller is told to ask again."""
STOP_PATIENCE_SECONDS = 1.5
"""How long a launcher that was told to stop may take before its job is cancelled."""
CLOCK_SKEW_SECONDS = 2.0
TAG_NAME = "slurm-tag"
_KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")


class SlurmEngine(FolderEngine):
    """``transport`` ``None``: the one that the settings name. ``cannot`` is what the sandbox on the nodes is
    known not to isolate."""

    def __init__(
        self,
        data: Path,
        settings: SlurmSettings,
        *,
        transport: Transport | None = None,
        open_channel: OpenChannel | None = None,
        cannot: tuple[str, ...] = (),
    ) -> None:
        super().__init__(data, open_channel)
        self._settings = settings
        self.unix_users = settings.unix_users
        self._slurm = transport or connect(settings)
        self._cannot = cannot
        self._watch = QueueWatch(self._load_queue, self._news, settings.poll_seconds)
        self._tag = ""
        self._shims = ""
        self._known = threading.Lock()
        self._nodes: Mapping[str, SlurmNode] = {}
        self._nodes_at = 0.0
        self._nodes_back_off = BackOff(settings.poll_seconds)
        self._submit_back_off = BackOff(settings.poll_seconds)
        self._absent: dict[str, tuple[float, float]] = {}

    @property
    def unix_users(self) -> Mapping[str, str]:
        """Whom workloads run as, by the id of their account or team. What is not safe is refused when set."""
        return self._settings.unix_users

    @unix_users.setter
    def unix_users(self, users: Mapping[str, str]) -> None:
        settings = replace(self._settings, unix_users=users)
        for whose in users:
            unix_uid_of(settings, [whose], None)
        self._settings = settings

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(name="slurm", binds_cards=False, multi_node=True, cannot=self._cannot)

    def start(self) -> None:
        """Open the channel and begin to watch the queue; what runs is known by its folders and its names."""
        super().start()
        self._tag = self._read_tag()
        self._shims = str(write_shims(self._sandbox / "shims", self._settings.python))
        self._watch.start()

    def close(self) -> None:
        self._watch.close()
        super().close()
        self._slurm.close()

    def describe(self) -> str:
        """How Slurm is reached and its version, for people."""
        return self._slurm.describe()

    def nodes(self) -> tuple[NodeReport, ...]:
        """The nodes of our partitions. Those that other partitions use as well are there, and not up."""
        settings = self._settings
        return tuple(
            report(node, settings.zone, settings.partitions, settings.models, declared=settings.declared)
            for node in self._load_nodes(settings.poll_seconds).values()
        )

    def submit(self, launch: LaunchSpec) -> None:
        """Submit a job, unless Slurm has one of this name, or the folder says that there was one."""
        folder = self._folder(launch.allocation_id)
        if folder.has("slurm.json") and not self._is_lost(folder):
            return
        uid = unix_uid_of(self._settings, [launch.account_id, launch.team_id], launch.unix_uid)
        request = job_request(
            launch,
            self._load_nodes(60.0),
            self._settings.models,
            self._settings.partitions,
            self._site(),
        )
        written = self._write_launch(replace(launch, unix_uid=uid))
        if written is None:
            return
        with self._submit_back_off:
            self._submit_once(folder, request)
        self._watch.nudge()

    def running(self) -> tuple[str, ...]:
        """Our jobs in the queue, ended ones that still hold cards too, and launchers that Slurm lost."""
        queued = self._look_now().jobs
        names = {name for name, job in queued.items() if self._is_ours(job)}
        names |= {folder.path.name for folder in self._uncleaned() if self._is_alive(folder)}
        return tuple(sorted(names))

    def clean(self, allocation_id: str) -> None:
        """As every engine; a job that Slurm got after all, when its id was revoked already, is cancelled."""
        newest = self._watch.newest(self._settings.news_seconds_max)
        if newest and allocation_id in newest.jobs and self._folder(allocation_id).has("cleaned"):
            self._slurm.cancel(allocation_id)
        super().clean(allocation_id)

    # -- how

    def _look_into(self, folder: AllocationFolder, heard: LauncherState | None) -> Observation:
        """What folder and queue say together; see the module's text. Raises ``OSError``."""
        for _ in range(2):
            said = read_report(folder, heard)
            if said is not None:
                if said.stopped_by in (NODE_DOWN, NODE_LOST):
                    self._nodes_at = 0.0  # who asks what nodes there are, hears that it is down
                if folder.has("cleaned") or self._is_out_of_queue(folder, said) or self._is_absent(folder):
                    return Observation(Presence.ENDED, said)
                self._watch.nudge()
                return Observation(Presence.ALIVE, said)
            if not folder.has("state.json") and not folder.has("report.json"):
                return self._look_at_unclaimed(folder)
            if self._is_alive(folder):
                return Observation(Presence.ALIVE, newer_state(folder.read_state(), heard))
            # not there any more: look once more for the report that comes just before
        return Observation(Presence.GONE, newer_state(folder.read_state(), heard))

    def _submit_once(self, folder: AllocationFolder, request: JobRequest) -> None:
        if folder.has("submitting"):
            found = [job for job in self._slurm.find(request.name) if not job.over]
            if found:
                self._note_submitted(folder, found[0].job_id)
                return
        self._write(folder, "submitting", "")
        self._note_submitted(folder, self._slurm.submit(request))

    def _look_at_unclaimed(self, folder: AllocationFolder) -> Observation:
        if folder.has("revoked") or not folder.has("spec.json") or not folder.has("slurm.json"):
            return Observation(Presence.UNKNOWN)  # a submit finds out what became of the one before
        if not self._is_absent(folder):
            return Observation(Presence.ACCEPTED)
        try:
            over = self._known_jobs(folder)
        except EngineUnavailable:
            return Observation(Presence.ACCEPTED)
        if not over:
            return Observation(Presence.UNKNOWN)
        if folder.has("state.json"):  # it claimed at last
            return Observation(Presence.ALIVE, folder.read_state())
        return Observation(Presence.ENDED, _failed_start(folder, over[-1]))

    def _is_lost(self, folder: AllocationFolder) -> bool:
        """Whether Slurm knows nothing of a job that it once had, so that it is to be submitted again."""
        return self._is_absent(folder) and not folder.has("state.json") and not self._known_jobs(folder)

    def _known_jobs(self, folder: AllocationFolder) -> list[SlurmJob]:
        """All that Slurm remembers of the jobs of an allocation, the oldest first."""
        since = _submitted_at(folder) - 60
        known = [job for job in self._slurm.find(folder.path.name) if job.submitted_at >= since]
        return sorted(known, key=lambda job: job.submitted_at)

    def _is_alive(self, folder: AllocationFolder) -> bool:
        """Claimed, not reported, and not missing from the queue: a launcher elsewhere holds no lock here."""
        if not folder.has("state.json") or folder.has("report.json") or folder.has("cleaned"):
            return False
        return not self._is_absent(folder)

    def _is_absent(self, folder: AllocationFolder) -> bool:
        """Whether looks over ``absent_seconds`` found no job of it or, once it was claimed, one that waits
        to be started again: that one is cancelled in cleaning. False where there is no news."""
        name, snapshot = folder.path.name, self._watch.newest(self._settings.news_seconds_max)
        if snapshot is None:
            return False
        job = snapshot.jobs.get(name)
        present = job is not None and not (job.waits and folder.has("state.json"))
        with self._known:
            if present:
                self._absent.pop(name, None)
                return False
            first, last = self._absent.get(name, (snapshot.begun, snapshot.begun))
            if snapshot.begun - last > self._settings.news_seconds_max:
                first = snapshot.begun  # nobody looked in between
            self._absent[name] = (first, max(last, snapshot.begun))
        if snapshot.begun - first < self._settings.absent_seconds:
            return False
        return snapshot.begun_at - _submitted_at(folder) >= self._settings.absent_seconds

    def _is_out_of_queue(self, folder: AllocationFolder, said: LauncherState) -> bool:
        """Whether Slurm has no job of it any more. A look that began after the submit and finds none is
        enough: until its end the job was there. (Clocks of nodes may be wrong, hence not ``alive_at``.)"""
        snapshot = self._watch.newest(self._settings.news_seconds_max)
        if snapshot is None or folder.path.name in snapshot.jobs:
            return False
        margin = _submitted_at(folder)
        return snapshot.begun_at > max(margin - CLOCK_SKEW_SECONDS, min(said.alive_at, margin))

    def _clean_up(self, folder: AllocationFolder, tell: Callable[[], None]) -> None:
        """Nothing is revoked before Slurm answers; nothing counts as gone before Slurm says that it is."""
        name, said = folder.path.name, folder.read_report()
        known_over = said is not None and self._is_out_of_queue(folder, said)
        queued = not known_over and name in self._look_now().jobs
        if not folder.has("report.json"):
            write_atomically(folder / "revoked", "")
        tell()
        if queued:
            self._end_job(folder)
        elif not folder.has("report.json") and folder.has("state.json"):
            _await_silence(folder)
        if not folder.has("report.json") and folder.has("state.json"):
            finish_for_launcher(folder, self._copies)
        remove_folders(folder)
        write_atomically(folder / "cleaned", "")
        with self._known:
            self._absent.pop(name, None)

    def _end_job(self, folder: AllocationFolder) -> None:
        """Cancel, and wait until Slurm has no job of it; the launcher may end by itself first."""
        name = folder.path.name
        if folder.has("state.json"):
            wait_until(lambda: folder.has("report.json"), STOP_PATIENCE_SECONDS)
        give_up = time.monotonic() + CANCEL_PATIENCE_SECONDS
        if name in self._look_now().jobs:
            self._slurm.cancel(name)
        while name in self._look_now().jobs:
            if time.monotonic() > give_up:
                raise SlurmUnavailable(f"the job of {name} is being cancelled; ask again")
            time.sleep(0.05)

    def _look_now(self) -> Snapshot:
        return self._watch.look_after(time.monotonic(), self._settings.call_seconds_max)

    def _load_queue(self) -> tuple[SlurmJob, ...]:
        return self._slurm.jobs(self._settings.partitions)

    def _load_nodes(self, seconds_max: float) -> Mapping[str, SlurmNode]:
        """Not older than this; after a failure Slurm is left alone for a while, and this says why."""
        with self._known:
            now = time.monotonic()
            if self._nodes and now - self._nodes_at < seconds_max:
                return self._nodes
        with self._nodes_back_off:
            found = {node.name: node for node in our_nodes(self._slurm.nodes(), self._settings.partitions)}
        with self._known:
            self._nodes, self._nodes_at = found, now
        return found

    def _site(self) -> Site:
        settings = self._settings
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        if settings.conf:
            environment["SLURM_CONF"] = settings.conf
        folder = settings.commands or "/usr/bin"
        return Site(
            python=settings.python,
            srun=f"{folder}/srun",
            shims=self._shims,
            comment=self._comment(),
            environment=tuple(environment.items()),
        )

    def _comment(self) -> str:
        return f"starverse-{self._tag}"

    def _is_ours(self, job: SlurmJob) -> bool:
        return job.comment == self._comment()

    def _read_tag(self) -> str:
        """What tells our jobs from those of another platform on the same cluster; kept in the data folder."""
        path, aside = self._data / TAG_NAME, self._data / f".{TAG_NAME}.{secrets.token_hex(4)}"
        if not path.exists():
            aside.write_text(secrets.token_hex(8))
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(aside)
            aside.unlink()
        return path.read_text().strip()

    def _note_submitted(self, folder: AllocationFolder, job_id: str) -> None:
        self._write(folder, "slurm.json", json.dumps({"job_id": job_id, "submitted_at": time.time()}))
        with self._known:
            self._absent.pop(folder.path.name, None)

    def _write(self, folder: AllocationFolder, name: str, text: str) -> None:
        try:
            write_atomically(folder / name, text)
        except OSError as error:
            raise EngineUnavailable(f"{folder / name} cannot be written: {error.strerror}") from error


def _submitted_at(folder: AllocationFolder) -> float:
    """When Slurm took its job, by the clock of the control plane; 0 where that is not known."""
    try:
        return float(json.loads((folder / "slurm.json").read_text())["submitted_at"]) + CLOCK_SKEW_SECONDS
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def _failed_start(folder: AllocationFolder, job: SlurmJob) -> LauncherState:
    """What the launcher would have reported, had it come to life: Slurm's word, and its last one."""
    said = f"Slurm ended its job before it started: {'+'.join(sorted(job.states)).lower()}"
    with contextlib.suppress(OSError):
        lines = (folder / OUTPUT).read_text("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        said += f"; {last[-200:]}" if last else ""
    spec = folder.read_spec()
    now = time.time()
    return LauncherState(spec.allocation_id, spec.attempt, "ended", "", now, ended_at=now, failure=said)


def _await_silence(folder: AllocationFolder) -> None:
    """A launcher that Slurm knows nothing of ends by itself once it is revoked: until it is heard no more."""
    before = folder.read_state()
    wait_until(lambda: folder.has("report.json"), STOP_PATIENCE_SECONDS)
    if not folder.has("report.json") and folder.read_state() != before:
        raise SlurmUnavailable(f"the launcher of {folder.path.name} still speaks; ask again")


__all__ = ["SlurmEngine"]
