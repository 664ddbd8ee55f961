"""Each invariant of instances is broken on purpose once, and noticed by its name."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import text

from starverse.app.instances import stopping, views
from starverse.app.instances.launching import LaunchRequest, launch
from starverse.testing.instance_invariants import InstanceInspector
from starverse.testing.invariants import Inspector, Picture
from starverse.testing.platforms import fresh_database
from starverse.testing.simulated_world import SimulatedWorld


@dataclass
class Scene:
    """One instance runs, one was stopped."""

    world: SimulatedWorld
    promised: dict[str, set[views.PolicyView]]

    def picture(self) -> Picture:
        inspector = Inspector(self.world)
        inspector.tick()
        assert inspector.last is not None
        return inspector.last


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with fresh_database("sqlite", tmp_path) as database:
        world = SimulatedWorld(1, database, tmp_path / "data")
        world.calm = True
        lab = world.team("lab")
        promised = {}
        for name in ("old", "new"):
            made = launch(world.platform, lab, LaunchRequest("rtx4090", 1, name=name, wait=True))
            promised[made.id] = {made.policy}
        world.run(12, step=4)
        stopping.stop(world.platform, lab, "old")
        world.run(8, step=4)
        yield Scene(world, promised)
        world.close()


Plant = Callable[[Scene], None]


def sql(statement: str) -> Plant:
    def plant(scene: Scene) -> None:
        with scene.world.database.write() as connection:
            connection.execute(text("PRAGMA ignore_check_constraints = 1"))
            assert connection.execute(text(statement)).rowcount

    return plant


def remove_its_files(scene: Scene) -> None:
    shutil.rmtree(scene.world.data / "instances")


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("instances_as_their_runs", sql("UPDATE instances SET state = 'queued' WHERE name = 'new'")),
        ("instances_as_their_runs", sql("UPDATE instances SET starts = 7 WHERE name = 'new'")),
        (
            "stopped_ones_have_a_release_date",
            sql("UPDATE instances SET release_at = NULL WHERE name = 'old'"),
        ),
        ("policies_kept", sql("DELETE FROM instance_policies")),
        ("policies_kept", sql("UPDATE instance_policies SET idle_stop = 'off'")),
        (
            "idle_clocks_begin_with_assignments",
            sql("UPDATE instance_idleness SET allocation_id = 'another'"),
        ),
        ("same_files_at_each_start", remove_its_files),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_planted_fault_of_instances_is_noticed(scene: Scene, name: str, plant: Plant) -> None:
    inspector = InstanceInspector(scene.world, scene.promised)
    assert inspector.tick(scene.picture()) == []
    plant(scene)
    assert name in {broken.name for broken in inspector.tick(scene.picture())}
