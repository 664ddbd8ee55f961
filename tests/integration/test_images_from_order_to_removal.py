"""Images: ordered, built one after another, found by their team alone, kept while somebody needs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app.identity import Identity
from starverse.app.images import image_path, ordering
from starverse.app.images.ordering import NewImage
from starverse.domain.catalog.image_recipes import RecipeRequest
from starverse.domain.catalog.images import Image, ImageState
from starverse.domain.errors import Conflict, Invalid, NotFound, Unavailable
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data")


def order(world: World, who: Identity, name: str, *packages: str) -> Image:
    recipe = RecipeRequest(packages=packages or ("six==1.17.0",))
    return ordering.order_image(world.platform, who, NewImage(name, recipe))


def built(world: World, who: Identity, name: str, *packages: str) -> Image:
    order(world, who, name, *packages)
    for _ in range(3):
        world.run_reconciler("images")
    return ordering.get_image(world.platform, who, name)


def test_an_image_is_ready_with_size_digest_and_contents(world: World) -> None:
    wang = world.team("wang")
    first = order(world, wang, "mine", "six==1.17.0", "nvidia-cuda-runtime-cu12==12.6.77")
    assert (first.state, first.digest) == (ImageState.QUEUED, None)
    world.run_reconciler("images")
    assert ordering.get_image(world.platform, wang, "mine").state is ImageState.BUILDING
    world.run_reconciler("images")
    ready = ordering.get_image(world.platform, wang, first.id)
    assert ready.state is ImageState.READY
    assert ready.contents == ("nvidia-cuda-runtime-cu12==12.6.77", "six==1.17.0")
    assert (ready.cuda, ready.driver_min, ready.python) == ("12.6", "525.60.13", "3.11")
    assert ready.digest in world.images.stored
    assert image_path(world.platform, ready.id) == str(world.images.place(str(ready.digest)))
    assert world.images.builds() == ()


def test_one_build_at_a_time_in_the_order_of_their_asking(world: World) -> None:
    wang, li = world.team("wang"), world.team("li")
    world.images.held = True
    for who, name in ((wang, "a"), (li, "b"), (wang, "c")):
        order(world, who, name)
        world.clock.advance(seconds=1)
    for _ in range(3):
        world.run_reconciler("images")
    assert len(world.images.begun) == 1
    world.images.held = False
    for _ in range(6):
        world.run_reconciler("images")
    assert len(world.images.begun) == 3
    assert [
        ordering.get_image(world.platform, who, name).state.value for who, name in ((wang, "a"), (li, "b"))
    ] == [
        "ready",
        "ready",
    ]


def test_two_teams_that_build_the_same_share_its_bytes_and_nothing_else(world: World) -> None:
    wang, li = world.team("wang"), world.team("li")
    one, other = built(world, wang, "mine"), built(world, li, "ours")
    assert one.digest == other.digest
    assert [image.name for image in ordering.list_images(world.platform, li)] == ["ours"]
    for text in ("mine", one.id):
        with pytest.raises(NotFound):
            ordering.get_image(world.platform, li, text)
    ordering.remove_image(world.platform, wang, "mine")
    world.run_reconciler("images")
    assert one.digest in world.images.stored, "li still has it"
    ordering.remove_image(world.platform, li, "ours")
    world.run_reconciler("images")
    assert world.images.stored == {}


def test_a_failed_build_says_why_and_makes_room_for_the_next_try(world: World) -> None:
    wang = world.team("wang")
    world.images.failures["nothing"] = "nothing was not found in the package registry"
    failed = built(world, wang, "mine", "nothing==1.0")
    assert failed.state is ImageState.FAILED
    assert "not found" in failed.message
    with pytest.raises(Conflict, match="nothing to verify"):
        ordering.verify_image(world.platform, wang, "mine")
    assert built(world, wang, "mine").state is ImageState.READY
    with pytest.raises(Conflict, match="mine already"):
        order(world, wang, "mine")


def test_a_builder_that_is_killed_is_followed_by_another(world: World) -> None:
    wang = world.team("wang")
    world.images.held = True
    order(world, wang, "mine")
    world.run_reconciler("images")
    world.images.kill()
    world.run_reconciler("images")
    assert len(world.images.begun) == 2
    world.images.held = False
    world.run_reconciler("images")
    assert ordering.get_image(world.platform, wang, "mine").state is ImageState.READY


def test_a_server_that_dies_while_one_is_built_finds_the_build_again(world: World) -> None:
    wang = world.team("wang")
    world.images.held = True
    order(world, wang, "mine")
    world.run_reconciler("images")
    world.restart()
    world.run_reconciler("images")
    assert len(world.images.begun) == 1
    world.images.held = False
    world.run_reconciler("images")
    assert ordering.get_image(world.platform, wang, "mine").state is ImageState.READY


def test_an_image_removed_while_it_is_built_leaves_nothing(world: World) -> None:
    wang = world.team("wang")
    world.images.held = True
    order(world, wang, "mine")
    world.run_reconciler("images")
    ordering.remove_image(world.platform, wang, "mine")
    world.run_reconciler("images")
    assert world.images.builds() == ()
    with pytest.raises(NotFound):
        ordering.get_image(world.platform, wang, "mine")


def test_what_a_job_needs_is_not_removed_and_stays_until_its_end(world: World) -> None:
    wang = world.team("wang")
    image = built(world, wang, "mine")
    job = world.submit(wang, "--image=mine")
    with pytest.raises(Conflict, match="1 jobs that have not ended"):
        ordering.remove_image(world.platform, wang, "mine")
    world.run(3)
    assert world.job(wang, job.number).state.value == "running"
    with pytest.raises(Conflict):
        ordering.remove_image(world.platform, wang, "mine")
    world.run(80)
    assert world.job(wang, job.number).state.value == "succeeded"
    ordering.remove_image(world.platform, wang, "mine")
    world.run_reconciler("images")
    assert image.digest not in world.images.stored


def test_a_job_gets_its_image_and_its_run_record_names_the_bytes(world: World) -> None:
    from starverse.app import jobs

    wang = world.team("wang")
    image = built(world, wang, "mine")
    job = world.submit(wang, "--image=mine")
    world.run(2)
    (spec,) = [run.spec for run in world.engine.launchers.values()]
    assert spec.image == str(world.images.place(str(image.digest)))
    told = jobs.record(world.platform, wang, job.number)["image"]
    assert told == {"kind": "venv", "name": "mine", "digest": image.digest, "id": image.id}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("theirs", "an image of `starverse image ls`"),
        ("numpy", "`starverse image build numpy` builds this one"),
        ("waiting", "waiting is queued"),
        ("..", "the name of an image"),
    ],
)
def test_a_job_on_an_image_that_it_cannot_have_is_refused_at_once(
    world: World, name: str, expected: str
) -> None:
    wang, li = world.team("wang"), world.team("li")
    built(world, li, "theirs")
    world.images.held = True
    order(world, wang, "waiting")
    with pytest.raises(Invalid, match="image") as refused:
        world.submit(wang, f"--image={name}")
    assert expected in str(refused.value.faults[0])


def test_an_image_whose_bytes_are_gone_fails_the_start_and_costs_nothing(world: World) -> None:
    wang = world.team("wang")
    image = built(world, wang, "mine")
    job = world.submit(wang, "--image=mine")
    world.images.held = True
    world.images.stored.clear()
    with pytest.raises(Unavailable, match="not whole"):
        image_path(world.platform, image.id)
    world.run(5)
    assert world.job(wang, job.number).state.value != "running"
    assert world.bill(wang).total.micro == 0
    world.assert_sound()


def test_an_image_whose_bytes_are_gone_is_built_again(world: World) -> None:
    """As after a restore of a backup that has no images."""
    wang = world.team("wang")
    image = built(world, wang, "mine")
    world.images.stored.clear()
    for _ in range(3):
        world.run_reconciler("images")
    again = ordering.get_image(world.platform, wang, "mine")
    assert (again.id, again.state, again.digest) == (image.id, ImageState.READY, image.digest)
    assert len(world.images.begun) == 2


def test_reading_every_byte_names_what_is_damaged(world: World) -> None:
    wang = world.team("wang")
    image = built(world, wang, "mine")
    assert ordering.verify_image(world.platform, wang, "mine").state == "verified"
    world.images.damaged.add(str(image.digest))
    found = ordering.verify_image(world.platform, wang, "mine")
    assert (found.state, found.faults[0].path) == ("damaged", "lib/six.py")
