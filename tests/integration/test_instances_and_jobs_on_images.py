"""Images under instances and jobs: which nodes can run one, what is seen inside, what a saved one brings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.app.identity import Identity
from starverse.app.images import ordering
from starverse.app.images.ordering import NewImage
from starverse.app.instances import changing, stopping, views
from starverse.app.instances.launching import LaunchRequest, launch
from starverse.app.instances.saving import save_image
from starverse.domain.catalog.image_recipes import RecipeRequest
from starverse.domain.catalog.images import Image, ImageKind, ImageState
from starverse.domain.errors import Conflict, Invalid, NoCapacity, NotFound
from starverse.domain.workloads.states import InstanceState
from starverse.engines.fake import FakeRun
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

FOR_EVER = FakeRun(run_seconds=float("inf"))
CUDA = RecipeRequest(packages=("torch==2.9.0",), cuda="12.6")


def on_nodes(kind: str, tmp_path: Path, *drivers: str) -> Iterator[World]:
    nodes = tuple(replace(node_report(f"n{i}"), driver=driver) for i, driver in enumerate(drivers, 1))
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data", nodes=nodes)


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    yield from on_nodes(kind, tmp_path, "550.54.14")


@pytest.fixture
def old_world(kind: str, tmp_path: Path) -> Iterator[World]:
    """Every node has a driver of before CUDA 12."""
    yield from on_nodes(kind, tmp_path, "470.57.02", "465.19.01")


def built(world: World, who: Identity, name: str, recipe: RecipeRequest = CUDA) -> Image:
    ordering.order_image(world.platform, who, NewImage(name, recipe))
    for _ in range(3):
        world.run_reconciler("images")
    return ordering.get_image(world.platform, who, name)


def test_where_no_node_can_run_it_nothing_is_made_held_or_charged(old_world: World) -> None:
    lab = old_world.team("lab")
    built(old_world, lab, "pytorch")
    said = r"NVIDIA driver 525\.60\.13 or newer; n[12] has 4(70\.57\.02|65\.19\.01)"
    with pytest.raises(NoCapacity, match=said):
        launch(old_world.platform, lab, LaunchRequest("rtx4090", 1, name="box", image="pytorch"))
    with pytest.raises(NoCapacity, match=said):
        launch(old_world.platform, lab, LaunchRequest("rtx4090", 1, name="box", image="pytorch", wait=True))
    with pytest.raises(NoCapacity, match=said):
        old_world.submit(lab, "--image=pytorch")
    old_world.run(3)
    with pytest.raises(NotFound):
        views.get(old_world.platform, lab, "box")
    assert old_world.bill(lab).total.micro == 0
    assert old_world.engine.launchers == {}
    old_world.assert_sound()


def test_an_image_without_cuda_runs_on_any_driver(old_world: World) -> None:
    lab = old_world.team("lab")
    built(old_world, lab, "plain", RecipeRequest(packages=("six==1.17.0",)))
    old_world.plan("box", FOR_EVER)
    launch(old_world.platform, lab, LaunchRequest("rtx4090", 1, name="box", image="plain"))
    old_world.run(3)
    assert views.get(old_world.platform, lab, "box").state is InstanceState.RUNNING


def test_a_node_that_loses_its_driver_while_the_job_waits_is_not_used(world: World) -> None:
    """The rule holds on the rows of the moment, not on those of the submission."""
    lab = world.team("lab")
    built(world, lab, "pytorch")
    job = world.submit(lab, "--image=pytorch")
    world.engine.reports = (replace(world.engine.reports[0], driver="470.57.02"),)
    world.run_reconciler("inventory")
    world.run(3)
    shown = world.job(lab, job.number)
    assert shown.state.value == "failed"
    assert "470.57.02" in shown.message
    assert world.bill(lab).total.micro == 0


def test_an_instance_sees_its_image_at_each_start(world: World) -> None:
    lab = world.team("lab")
    image = built(world, lab, "pytorch")
    world.plan("box", FOR_EVER)
    made = launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", image="pytorch"))
    assert made.image == "pytorch"
    world.run(3)
    (run,) = world.engine.launchers.values()
    assert run.spec.image == str(world.images.place(str(image.digest)))
    with pytest.raises(Conflict, match="1 jobs that have not ended and 1 instances"):
        ordering.remove_image(world.platform, lab, "pytorch")
    with pytest.raises(Invalid, match="image") as refused:
        launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="other", image="tensorflow"))
    assert "`starverse image build tensorflow`" in str(refused.value.faults)


def test_a_saved_image_begins_a_new_instance_with_the_files_of_the_old(world: World) -> None:
    lab = world.team("lab")
    base = built(world, lab, "pytorch")
    for name in ("box", "new"):
        world.plan(name, FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", image="pytorch"))
    world.run(3)
    with pytest.raises(Conflict, match="is running: its files change"):
        save_image(world.platform, lab, "box", "mine")
    stopping.stop(world.platform, lab, "box")
    world.run(5)
    assert save_image(world.platform, lab, "box", "mine").state is ImageState.QUEUED
    for _ in range(3):
        world.run_reconciler("images")
    saved = ordering.get_image(world.platform, lab, "mine")
    assert (saved.kind, saved.state, saved.driver_min) == (ImageKind.SAVED, ImageState.READY, "525.60.13")
    (layer,) = world.images.begun[-1].layers
    assert layer == (
        "home",
        str(world.platform.paths.instance_home(views.get(world.platform, lab, "box").id)),
    )

    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="new", image="mine"))
    world.run(3)
    home = world.platform.paths.instance_home(views.get(world.platform, lab, "new").id)
    assert world.images.laid == [(saved.digest, "home", home, None)]
    run = next(run for run in world.engine.launchers.values() if not run.ended)
    assert run.spec.image == str(world.images.place(str(base.digest))), "upon what it was saved from"
    with pytest.raises(Conflict, match="1 saved images"):
        ordering.remove_image(world.platform, lab, "pytorch")
    with pytest.raises(Invalid) as refused:
        world.submit(lab, "--image=mine")
    assert "mine is for instances" in str(refused.value.faults)


def test_nobody_saves_or_starts_on_what_is_another_teams(world: World) -> None:
    lab, other = world.team("lab"), world.team("other")
    built(world, lab, "pytorch")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    with pytest.raises(NotFound):
        save_image(world.platform, other, "box", "mine")
    with pytest.raises(Invalid) as refused:
        launch(world.platform, other, LaunchRequest("rtx4090", 1, name="box", image="pytorch"))
    assert "`starverse image build pytorch`" in str(refused.value.faults), "as if there were none"


def test_without_a_sandbox_no_image_can_be_shown_and_it_is_said_at_once(kind: str, tmp_path: Path) -> None:
    with fresh_database(kind, tmp_path) as database:
        world = World(database, tmp_path / "data", driver="process")
        lab = world.team("lab")
        built(world, lab, "pytorch")
        with pytest.raises(Invalid) as refused:
            world.submit(lab, "--image=pytorch")
        assert "without a sandbox" in str(refused.value.faults)


def test_a_container_image_is_for_instances_and_jobs_and_what_is_written_over_it_becomes_one(
    world: World,
) -> None:
    """A driver too old for it is refused as with any other image; what is over it is no home, and keeps what
    the image needs of a node."""
    lab = world.team("lab")
    recipe = RecipeRequest(kind="oci", reference="docker.io/library/debian:12", cuda="12.6")
    image = built(world, lab, "debian", recipe)
    newer = built(world, lab, "newer", replace(recipe, reference="docker.io/nvidia/cuda:13.0", cuda="13.0"))
    assert (image.driver_min, newer.driver_min) == ("525.60.13", "580.65.06")
    with pytest.raises(NoCapacity, match=r"NVIDIA driver 580\.65\.06 or newer; n1 has 550\.54\.14"):
        launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="other", image="newer"))
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", image="debian"))
    world.run(3)
    (run,) = world.engine.launchers.values()
    assert run.spec.image == str(world.images.place(str(image.digest)))
    stopping.stop(world.platform, lab, "box")
    world.run(5)
    saved = save_image(world.platform, lab, "box", "mine")
    assert (saved.kind, saved.driver_min) == (ImageKind.OCI, "525.60.13")
    assert saved.recipe_digest != image.recipe_digest
    changing.clone(world.platform, lab, "box", "box-2")
    assert views.get(world.platform, lab, "box").state is InstanceState.STOPPED
    job = world.submit(lab, "--image=debian")
    world.run(3)
    assert world.job(lab, job.number).state.value != "failed"
