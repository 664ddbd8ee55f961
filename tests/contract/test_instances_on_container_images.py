"""Instances on container images that have neither sshd nor Python: root inside, and what is written stays."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import Desired, Plug
from starverse.domain.workloads.sub_ids import sub_ids_first
from starverse.node.sandbox.oci_inside import CAPABILITIES
from starverse.testing.container_images import tiny_image
from starverse.testing.gangs import Gang
from starverse.testing.instance_sites import TEAM_UID, Site, instance_site
from starverse.testing.launcher_platforms import ORDINARY_UID, SOURCE, give_all, open_platform
from starverse.testing.launches import own
from starverse.testing.ssh_lines import SshLine

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the ids of users inside are looked at as root"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
    pytest.mark.skipif(shutil.which("busybox") is None, reason="busybox-static is not installed"),
    pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="openssh-server is not installed"),
]

IDS = sub_ids_first(TEAM_UID, TEAM_UID - 1)
WWW = 33


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the store keeps it: all files root's."""
    root = tiny_image(tmp_path_factory.mktemp("image") / "root")
    (root / "srv/www").mkdir(parents=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nwww:x:33:33:www:/srv/www:/bin/sh\n")
    about = {"variables": {"GREETING": "你好 there"}, "odd": [["/srv/www", 0o750, WWW, WWW]]}
    (root / ".starverse-image.json").write_text(json.dumps(about))
    return root


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with instance_site() as made:
        yield made


@contextmanager
def started(site: Site, image: Path, name: str, **changes: object) -> Iterator[SshLine]:
    name = own(name)
    site.launch(name, image=str(image), **({"sub_ids_first": IDS} | changes))
    with site.ssh(name) as line:
        yield line
    site.engine.steer(name, Desired(stop=True))
    site.until(name, lambda state: state.phase == "ended")
    site.engine.clean(name)


def said(line: SshLine, command: str) -> list[str]:
    done = line.run(command)
    assert done.returncode == 0, done
    return done.stdout.decode().splitlines()


def test_root_inside_is_nobody_outside_and_what_it_writes_stays(site: Site, image: Path) -> None:
    """Owners, other users and a removed folder too; the image stays as it was."""
    home = site.data / "instances" / "kept" / "home"
    with started(site, image, "first", home=str(home)) as line:
        assert said(line, 'id -u; whoami; pwd; echo "$USER $GREETING"; stat -c "%a %u" /srv/www') == [
            "0",
            "root",
            "/root",
            "root 你好 there",
            f"750 {WWW}",
        ]
        assert said(
            line, "echo more > /etc/more && chown www /etc/more && rm -r /opt && stat -c %u /etc/more"
        )
        assert said(line, "su www -c 'id -u; touch ~/own; touch /etc/not 2>/dev/null || echo not'") == [
            str(WWW),
            "not",
        ]
        said(line, "echo settings > /root/settings; echo work > /workspace/work")
    assert (home / "upper/etc/more").stat().st_uid == IDS + WWW
    assert (image / "opt").is_dir()
    assert not (image / "etc/more").exists()
    with started(site, image, "second", home=str(home)) as line:
        assert said(
            line, "cat /etc/more /root/settings; stat -c %u /etc/more /srv/www/own; ls -d /opt || true"
        ) == [
            "more",
            "settings",
            str(WWW),
            str(WWW),
        ]
        assert said(line, "grep -c ^user: /etc/passwd; grep -c ^sshd: /etc/passwd") == ["1", "1"]


def test_root_inside_mounts_nothing_and_makes_no_devices(site: Site, image: Path) -> None:
    with started(site, image, "tries") as line:
        for attempt in (
            "mkdir -p /m && mount -t tmpfs none /m",
            "mount -o remount,rw /run/starverse",
            "umount /data",
            "mknod /m/null c 1 3",
            "unshare -U true",
            "hostname other",
            "chroot / mount -t proc none /m",
            "echo 1 > /proc/sys/kernel/panic",
            "touch /run/starverse/x",
        ):
            assert line.run(attempt).returncode != 0, attempt
        allowed = sum(1 << number for number in CAPABILITIES.values())
        lines = dict(text.split(":\t") for text in said(line, "grep ^Cap /proc/self/status"))
        assert all(int(lines[name], 16) == allowed for name in ("CapPrm", "CapEff", "CapBnd")), lines


def test_disks_come_and_go_and_files_are_carried(site: Site, image: Path, tmp_path: Path) -> None:
    disk = site.data / "disk"
    disk.mkdir()
    os.chown(disk, TEAM_UID, TEAM_UID)
    plug = Plug("plug-1", "/data/home", "shared", str(disk))
    (tmp_path / "a file").write_bytes(os.urandom(100_000))
    with started(site, image, "plugged") as line:
        site.engine.steer(own("plugged"), Desired(plugs=(plug,)))
        site.until(own("plugged"), lambda state: any(one.state == "attached" for one in state.plugged))
        said(line, "echo 42 > /data/home/answer")
        assert (disk / "answer").stat().st_uid == TEAM_UID
        site.engine.steer(own("plugged"), Desired(plugs=()))
        site.until(own("plugged"), lambda state: any(one.state == "detached" for one in state.plugged))
        assert said(line, "ls /data") == []
        for source, target in (
            (str(tmp_path / "a file"), "user@inside:there"),
            ("user@inside:/root/there", str(tmp_path / "back")),
        ):
            done = line.tool("scp", source, target)
            assert done.returncode == 0, done.stderr.decode()
        assert (tmp_path / "back").read_bytes() == (tmp_path / "a file").read_bytes()
        assert line.run("tty && exit 3", options=("-tt",)).returncode == 3
        assert said(
            line, '"$STARVERSE_PYTHON" -I -c "import starverse.client.api, ssl, sys; print(len(sys.argv))"'
        ) == ["1"]


def test_without_ids_there_is_one_user_who_owns_the_image(site: Site, image: Path) -> None:
    with started(site, image, "alone", sub_ids_first=0) as line:
        assert said(line, "id -u; whoami; chmod u+w /tools && touch /tools/own && stat -c %u /tools/own") == [
            "1000",
            "user",
            "1000",
        ]
        assert said(line, "touch ~/own && stat -c %u /root/own") == ["1000"]


def test_an_image_with_a_user_of_our_name_is_refused_in_words(
    site: Site, image: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(image, other, symlinks=True)
    with (other / "etc/passwd").open("a") as file:
        file.write("user:x:1000:1000::/home/user:/bin/sh\n")
    site.engine.submit(site.build(own("named"), image=str(other), sub_ids_first=IDS))
    state = site.until(own("named"), lambda state: state.phase == "ended")
    assert "the image has an account user" in state.failure
    site.engine.clean(own("named"))


def test_ranks_on_every_node_have_the_image(image: Path, tmp_path: Path) -> None:
    """Each node its own layer over it; `srun` and its agents need no Python of the image."""
    told = 'echo "rank $SLURM_PROCID" $(cat /etc/os-release; id -u; ls /etc/head 2>/dev/null)'
    script = f"touch /etc/head; srun sh -c {shlex.quote(told)}\n"
    ids = sub_ids_first(200_002, 200_001)
    gang = Gang(tmp_path, "", name=own("gang"), image=str(image), sub_ids_first=ids)
    gang.spec = replace(gang.spec, script=f"#!/bin/sh\n{script}")
    gang.folder.write_spec(gang.spec)
    try:
        gang.start()
        report = gang.wait()
        assert report.exit_code == 0, gang.tell()
        lines = [line for line in gang.log.splitlines() if line.startswith("rank")]
        assert sorted(lines) == ["rank 0 ID=tiny 0 /etc/head", "rank 1 ID=tiny 0"], gang.tell()
    finally:
        gang.close()


def test_an_ordinary_user_with_ids_of_its_own_has_root_inside_and_copies_and_deletes_all_of_it(
    image: Path, tmp_path: Path
) -> None:
    """By ``newuidmap``: what users inside own is not the platform's user's to delete, but root inside's."""
    if shutil.which("newuidmap") is None:
        pytest.skip("newuidmap is not installed: apt-get install uidmap")
    given = tmp_path / "subids"
    given.write_text(f"{ORDINARY_UID}:400000:65536\n")
    both = f'mount --bind {given} /etc/subuid; mount --bind {given} /etc/subgid; exec "$@"'
    with open_platform("ordinary user", tmp_path, ("unshare", "-m", "sh", "-ec", both, "sh")) as platform:
        # newuidmap is a program of root's, which needs what else is taken away from an ordinary user here
        platform.prefix = tuple(word for word in platform.prefix if not word.startswith("--bounding-set"))
        own_image = platform.data.parent / "image"
        shutil.copytree(image, own_image, symlinks=True)
        give_all(own_image, ORDINARY_UID)
        spec = platform.build(own("own-ids"), image=str(own_image))
        script = "id -u; mkdir -m 700 /srv/a && touch /srv/a/b && chown -R 33:33 /srv/a && stat -c %u /srv/a"
        platform.begin(replace(spec, script=f"#!/bin/sh\n{script}\n"))
        platform.wait(spec, "ended")
        platform.started[-1].wait(20)
        assert Path(spec.logs, "1.out").read_text().splitlines() == ["0", "33"]
        layer = Path(spec.folder, "layer")
        assert (layer / "upper/srv/a").stat().st_uid == 400_032
        copy = layer.with_name("copy")

        def as_the_platform(code: str) -> str:
            code = (
                "import pathlib; from starverse.checkpoint.removing import remove_tree\n"
                "from starverse.node.disk_trees import copy_tree, measure\n"
                f"layer, copy = pathlib.Path({str(layer)!r}), pathlib.Path({str(copy)!r})\n{code}"
            )
            command = ["env", f"PYTHONPATH={SOURCE}", *platform.prefix, platform.python, "-c", code]
            done = subprocess.run(command, capture_output=True, check=False, timeout=60)
            assert done.returncode == 0, done.stderr.decode()
            return done.stdout.decode()

        as_the_platform("copy_tree(layer, copy)")
        assert (copy / "upper/srv/a/b").stat().st_uid == 400_032
        files = sum(not path.is_dir() for path in layer.rglob("*"))
        assert as_the_platform("print(measure(copy).files)").split() == [str(files)]
        as_the_platform("remove_tree(layer); remove_tree(copy)")
        assert not layer.exists()
        assert not copy.exists()
