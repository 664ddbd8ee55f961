"""What must hold of the instances of a whole platform at any moment, by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, select

from starverse.app.instances.views import PolicyView, policy_view
from starverse.db import instances as rows
from starverse.db.instance_tables import instance_policies, instances
from starverse.domain.workloads.instances import Instance
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.states import (
    ENDED_JOB_STATES,
    INSTANCE_TRANSITIONS,
    InstanceState,
    JobState,
    path,
)
from starverse.engines.fake.run import FakeLauncher
from starverse.testing.invariants import Broken, Picture
from starverse.testing.simulated_world import SimulatedWorld

_AS_RUN = {
    JobState.QUEUED: InstanceState.QUEUED,
    JobState.RUNNING: InstanceState.RUNNING,
}


@dataclass(frozen=True, slots=True)
class InstancesSeen:
    """All instances, with their policies and idle clocks, at one moment."""

    found: Mapping[str, Instance]
    policies: Mapping[str, PolicyView]
    clocks: Mapping[str, rows.IdleClock]


def look(connection: Connection) -> InstancesSeen:
    ids = list(connection.execute(select(instances.c.id)).scalars())
    wanted = list(connection.execute(select(instance_policies.c.instance_id)).scalars())
    return InstancesSeen(
        found=rows.get_many(connection, ids),
        policies={key: policy_view(policy) for key, policy in rows.policies_of(connection, wanted).items()},
        clocks=rows.idle_clocks(connection, ids),
    )


def broken_of_instances(
    seen: InstancesSeen,
    before: InstancesSeen | None,
    jobs: Mapping[str, Job],
    allocations: Mapping[str, Allocation],
    launchers: Mapping[str, FakeLauncher],
) -> Iterator[tuple[str, str]]:
    """(name, where) of every rule that does not hold."""
    yield from _as_their_runs(seen, jobs)
    yield from _clocks_of_their_runs(seen, allocations, jobs)
    yield from _same_files(seen, jobs, launchers)
    yield from _legal(seen, before)
    for key in seen.found.keys() - seen.policies.keys():
        yield "policies_kept", f"instance {key} has no policy"


@dataclass(slots=True)
class InstanceInspector:
    """Looks at the instances of a world after each tick; ``promised`` as in ``InstanceMoves``."""

    world: SimulatedWorld
    promised: Mapping[str, set[PolicyView]]
    last: InstancesSeen | None = None

    def tick(self, picture: Picture) -> list[Broken]:
        with self.world.database.read() as connection:
            seen = look(connection)
        found = [
            *broken_of_instances(seen, self.last, picture.jobs, picture.allocations, picture.launchers),
            *broken_promises(seen, self.promised),
        ]
        self.last = seen
        return [Broken(name, where) for name, where in found]


def broken_promises(
    seen: InstancesSeen, promised: Mapping[str, set[PolicyView]]
) -> Iterator[tuple[str, str]]:
    """Policies are what their owners last asked for, whatever was seen, stopped or restarted since."""
    for key, allowed in promised.items():
        if key in seen.policies and seen.policies[key] not in allowed:
            yield "policies_kept", f"instance {key} has {seen.policies[key]}, not one of {allowed}"


def _as_their_runs(seen: InstancesSeen, jobs: Mapping[str, Job]) -> Iterator[tuple[str, str]]:
    """An instance says what its present run says; no earlier one goes on."""
    starts: dict[str, list[Job]] = defaultdict(list)
    for job in jobs.values():
        if job.instance_id is not None:
            starts[job.instance_id].append(job)
    for key, instance in seen.found.items():
        run = jobs.get(instance.run_id or "")
        right = InstanceState.STOPPED if run is None else _AS_RUN.get(run.state, InstanceState.STOPPED)
        over = {InstanceState.STOPPED, InstanceState.RELEASED}
        if instance.state is not right and not (right in over and instance.state in over):
            told = "nothing" if run is None else run.state.value
            yield "instances_as_their_runs", f"{instance.name} is {instance.state.value}, its run {told}"
        for job in starts[key]:
            if job.id != instance.run_id and job.state not in ENDED_JOB_STATES:
                yield "instances_as_their_runs", f"an earlier start of {instance.name} is {job.state.value}"
        if len(starts[key]) != instance.starts:
            yield (
                "instances_as_their_runs",
                f"{instance.name}: {instance.starts} of {len(starts[key])} starts",
            )
        if instance.state in over and instance.afterwards is not None:
            yield "instances_as_their_runs", f"{instance.name} has stopped, and what was to follow did not"
        if (instance.state is InstanceState.STOPPED) != (instance.release_at is not None):
            yield "stopped_ones_have_a_release_date", f"{instance.name} is {instance.state.value}"


def _clocks_of_their_runs(
    seen: InstancesSeen, allocations: Mapping[str, Allocation], jobs: Mapping[str, Job]
) -> Iterator[tuple[str, str]]:
    """The idle clock is of the newest assignment, not begun before it."""
    newest: dict[str, Allocation] = {}
    for a in allocations.values():
        instance_id = jobs[a.job_id].instance_id
        if instance_id is not None and (
            instance_id not in newest
            or (newest[instance_id].placed_at, newest[instance_id].id) < (a.placed_at, a.id)
        ):
            newest[instance_id] = a
    for key, a in newest.items():
        clock = seen.clocks.get(key)
        if clock is None or clock.allocation_id != a.id or clock.counts_from < a.placed_at:
            yield "idle_clocks_begin_with_assignments", f"{key}: {clock} beside {a.id} of {a.placed_at}"


def _same_files(
    seen: InstancesSeen, jobs: Mapping[str, Job], launchers: Mapping[str, FakeLauncher]
) -> Iterator[tuple[str, str]]:
    """Every start of an instance has the same files, and they are there as long as it is not released."""
    had: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for run in launchers.values():
        job = jobs.get(run.spec.job_id)
        if job is not None and job.instance_id is not None:
            had[job.instance_id].add((run.spec.home, run.spec.workspace))
    for key, places in had.items():
        instance = seen.found[key]
        if len(places) > 1:
            yield "same_files_at_each_start", f"{instance.name} had {sorted(places)}"
        gone = [place for pair in places for place in pair if not Path(place).is_dir()]
        if instance.state is not InstanceState.RELEASED and gone:
            yield "same_files_at_each_start", f"{instance.name} ({instance.state.value}) lacks {gone}"


def _legal(seen: InstancesSeen, before: InstancesSeen | None) -> Iterator[tuple[str, str]]:
    for key, instance in seen.found.items():
        old = None if before is None else before.found.get(key)
        if old is not None and path(INSTANCE_TRANSITIONS, old.state, instance.state) is None:
            yield "legal_transitions", f"instance {instance.name}: {old.state} -> {instance.state}"
