"""``--disk`` of a batch job: had from its start to its end, or refused with its reason before that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app.disks import orders
from starverse.app.disks.orders import NewDisk
from starverse.app.identity import Identity
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Conflict, Invalid
from starverse.domain.workloads.states import AttachmentState, JobState
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data")


@pytest.fixture
def lab(world: World) -> Identity:
    who = world.team("lab")
    for name, kind_ in [("home", DiskKind.SHARED), ("my data", DiskKind.BLOCK)]:
        orders.create_disk(world.platform, who, NewDisk(name, kind_, 1))
    world.follow_disks()
    return who


def states(world: World, who: Identity, name: str) -> list[tuple[str, AttachmentState]]:
    found = orders.get_disk(world.platform, who, name).attachments
    return [(one.job, one.state) for one in found]


def test_a_job_has_its_disks_from_its_start_to_its_end(world: World, lab: Identity) -> None:
    world.plan("train", run_seconds=30)
    job = world.submit(lab, "--disk=home", "--disk=my data:/data/in:ro", name="train")
    world.run(5)
    (run,) = world.engine.launchers.values()
    assert {(p.target, p.kind, p.read_only) for p in run.plugs.there.values()} == {
        ("/data/home", "shared", False),
        ("/data/in", "block", True),
    }
    assert states(world, lab, "home") == [(job.number, AttachmentState.ATTACHED)]
    with pytest.raises(Conflict, match=f"job {job.number}"):
        orders.delete_disk(world.platform, lab, "home")
    world.run(60)
    assert world.job(lab, job.number).state is JobState.SUCCEEDED
    assert states(world, lab, "home") == [(job.number, AttachmentState.DETACHED)]
    assert states(world, lab, "my data") == [(job.number, AttachmentState.DETACHED)]


def test_jobs_take_turns_with_a_block_disk_and_share_a_folder(world: World, lab: Identity) -> None:
    world.plan("train", run_seconds=30)
    jobs = [world.submit(lab, "--disk=my data", "--disk=home", name="train").number for _ in range(2)]
    world.run(5)
    first, second = (world.job(lab, number) for number in jobs)
    assert (first.state, second.state) == (JobState.RUNNING, JobState.QUEUED)
    assert (second.reason, f"job {first.number} has it" in second.message) == ("disk_in_use", True)
    world.run(120)
    assert [world.job(lab, number).state for number in jobs] == [JobState.SUCCEEDED] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--disk=nothing",), "disk ls"),
        (("--disk=home:/etc",), "/data/NAME"),
        (("--disk=home:relative",), "NAME:/data/PATH"),
        (("--disk=home", "--disk=home:/data/again"), "once"),
        (("--disk=home:/data/x", "--disk=my data:/data/x"), "once"),
    ],
)
def test_a_disk_that_cannot_be_had_is_refused_before_anything_runs(
    world: World, lab: Identity, words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(Invalid) as refused:
        world.submit(lab, *words)
    assert said in str(refused.value)


def test_another_teams_disk_is_no_disk(world: World, lab: Identity) -> None:
    rival = world.team("rival")
    disk_id = orders.get_disk(world.platform, lab, "home").id
    for ref in ("home", disk_id):
        with pytest.raises(Invalid, match="disk ls"):
            world.submit(rival, f"--disk={ref}")
