"""Container images: fetched by podman from a registry on this machine, run by the sandbox of all else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import starverse
from starverse.domain.catalog.image_builds import BuildOrder, BuildPhase, BuildResult
from starverse.domain.catalog.image_recipes import RecipeRequest, make_recipe
from starverse.domain.catalog.images import cuda_of_contents
from starverse.domain.workloads.sub_ids import sub_ids_first
from starverse.engines.folders.leftovers import LastCopies
from starverse.engines.local.cleaning import clean_up
from starverse.node.folder import AllocationFolder
from starverse.node.images.builder import ProcessBuilder
from starverse.testing.container_images import tiny_image
from starverse.testing.launches import build_launch, own
from starverse.testing.registries import registry

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="podman without root needs ranges of ids of its own"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
    pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not here: apt-get install podman"),
    pytest.mark.skipif(
        shutil.which("busybox") is None, reason="busybox is not installed: apt-get install busybox-static"
    ),
]

TEAM_UID = 200_001
VARIABLES = ("PATH=/tools:/bin", "GREETING=你好 world", "CUDA_VERSION=12.6.1")


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    """A file system with nothing of the host's in it: no glibc, no Python, no bash."""
    root = tiny_image(tmp_path / "rootfs")
    (root / "etc/passwd").symlink_to("/opt/app/passwd")
    return root


@pytest.fixture
def builder(tmp_path: Path, rootfs: Path) -> Iterator[tuple[ProcessBuilder, str]]:
    """A builder whose podman knows the registry, and where that is."""
    with registry(rootfs, VARIABLES) as address:
        settings = tmp_path / "registries.conf"
        settings.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(starverse.__file__).parents[1]),
            "HOME": str(tmp_path),
            "CONTAINERS_REGISTRIES_CONF": str(settings),
        }
        made = ProcessBuilder(tmp_path / "data" / "images", environment)
        yield made, address
        made.close()


def built(builder: ProcessBuilder, reference: str) -> BuildResult:
    recipe = make_recipe(RecipeRequest(kind="oci", reference=reference))
    order = BuildOrder(str(uuid.uuid4()), recipe.to_text(), "auto", TEAM_UID - 2, 120, 1 << 30, 0)
    builder.begin(order)
    give_up = time.monotonic() + 90
    while (look := builder.look(order.image_id)).phase is BuildPhase.RUNNING:
        assert time.monotonic() < give_up
        time.sleep(0.05)
    assert builder.end(order.image_id)
    assert look.result is not None
    return look.result


def run(tmp_path: Path, image: Path, script: str) -> tuple[int | None, str]:
    """A job's script on the image; its exit code and what it said."""
    ids = sub_ids_first(TEAM_UID, TEAM_UID)
    spec = build_launch(
        tmp_path / "data", own("tiny"), unix_uid=TEAM_UID, image=str(image), sub_ids_first=ids
    )
    spec = replace(spec, script=f"#!/bin/sh\n{script}")
    folder = AllocationFolder(Path(spec.folder))
    folder.path.mkdir(parents=True, mode=0o700)
    folder.write_spec(spec)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(starverse.__file__).parents[1])}
    command = [sys.executable, "-m", "starverse.node.launcher", str(folder.path)]
    with (folder / "launcher.log").open("wb") as log:
        subprocess.run(command, stdout=log, stderr=log, env=environment, timeout=60, check=False)
    state = folder.read_state()
    said = Path(spec.logs, "1.out").read_text()
    clean_up(folder, lambda: None, LastCopies(patience_seconds=60))
    assert state is not None
    assert not state.failure, state.failure
    return state.exit_code, said


def test_a_job_runs_on_the_images_own_files_and_no_others(
    builder: tuple[ProcessBuilder, str], tmp_path: Path
) -> None:
    store, address = builder
    made = built(store, f"{address}/tiny:1")
    assert made.message == ""
    assert cuda_of_contents(made.contents) == "12.6"
    assert store.verify(made.digest) == ()
    assert built(store, f"{address}/tiny:1").digest == made.digest
    code, said = run(
        tmp_path,
        store.place(made.digest),
        "cat /etc/os-release; echo $GREETING; hello; id -u; ls /usr 2>&1; pwd; echo w > here\n"
        "touch /opt/app/x /etc/x && chown 33 /etc/x && stat -c %u /etc/x; cat /etc/passwd; ls /; exit 7\n",
    )
    lines = said.splitlines()
    assert code == 7, said
    assert lines[:4] == ["ID=tiny", "你好 world", "hello from the image", "0"]
    assert "No such file" in lines[4], "nothing of the host's /usr"
    assert lines[5] == "/workspace"
    assert lines[6] == "33", "root inside gives files to other users, in a layer that goes with the job"
    assert any(line.startswith("root:x:0") for line in lines)
    assert not (store.place(made.digest) / "etc/x").exists()
    assert {"workspace", "tools", "opt"} <= set(lines)


def test_without_podman_it_is_said_what_to_install(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "bwrap").symlink_to(shutil.which("bwrap") or "")
    environment = {"PATH": str(programs), "PYTHONPATH": str(Path(starverse.__file__).parents[1])}
    store = ProcessBuilder(tmp_path / "data" / "images", environment)
    try:
        made = built(store, "localhost/tiny:1")
    finally:
        store.close()
    assert made.message == "podman is not installed where the platform runs: apt-get install podman"


def test_what_cannot_be_fetched_is_said_and_nothing_is_kept(
    builder: tuple[ProcessBuilder, str],
) -> None:
    store, address = builder
    made = built(store, f"{address}/tiny:2")
    assert made.message.startswith(f"{address}/tiny:2 cannot be had: ")
    assert store.digests() == store.builds() == ()


def test_an_image_cannot_have_the_platform_write_elsewhere(
    builder: tuple[ProcessBuilder, str], rootfs: Path, tmp_path: Path
) -> None:
    """Links at the places where the builder itself writes lead nowhere."""
    store, _ = builder
    target = tmp_path / "target"
    target.mkdir()
    shutil.rmtree(rootfs / "etc")
    (rootfs / "etc").symlink_to(target)
    (rootfs / ".starverse-image.json").symlink_to(target / "about")
    with registry(rootfs, ()) as address:
        settings = tmp_path / "registries.conf"
        settings.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
        made = built(store, f"{address}/tiny:1")
    assert made.digest == ""
    assert list(target.iterdir()) == []
