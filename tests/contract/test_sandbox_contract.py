"""What every sandbox driver keeps a workload from, tried from inside, as a root platform and without root."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import starverse
from starverse.domain.workloads.launch import Mount
from starverse.node import processes
from starverse.node.folder import AllocationFolder
from starverse.testing import sandbox_probe
from starverse.testing.launcher_platforms import (
    OTHER_TEAM_UID,
    PLATFORM_KINDS,
    TEAM_UID,
    NotHere,
    Platform,
    open_platform,
)
from starverse.testing.launches import own


@pytest.fixture(params=PLATFORM_KINDS)
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Platform]:
    try:
        with open_platform(request.param, tmp_path) as opened:
            yield opened
    except NotHere as reason:
        pytest.skip(str(reason))


def _probe_script() -> str:
    return f'exec "$STARVERSE_PYTHON" -I -S {sandbox_probe.__file__} "$1"\n'


def _probe(platform: Platform, asked: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Run the probe as a workload; what it saw."""
    what = {"sibling_paths": [], "host_pids": [], "sockets": [], "abstract_sockets": [], "port": 9}
    what |= {"read_only": [], **asked}
    spec = platform.build(own("probe"), script=_probe_script(), arguments=(json.dumps(what),), **changes)
    platform.begin(spec)
    platform.wait(spec, "ended")
    text = Path(spec.logs, "1.out").read_text()
    for line in text.splitlines():
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
    raise AssertionError(text)


def _allowed(facts: dict[str, Any]) -> list[str]:
    return [f"{name}: {answer}" for name, answer in facts["attempts"].items() if answer.startswith("allowed")]


def _wait_for_processes(name: str, count: int) -> list[int]:
    give_up = time.monotonic() + 20
    while len(found := processes.find_tagged(name)) < count:
        assert time.monotonic() < give_up, f"{len(found)} of {count} processes of {name}"
        time.sleep(0.01)
    return found


def _bwrap_can_disable_userns() -> bool:
    answer = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, check=False)
    return "--disable-userns" in answer.stdout


@pytest.fixture
def needs_bwrap() -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")


@pytest.mark.usefixtures("needs_bwrap")
def test_bwrap_keeps_a_workload_in(platform: Platform) -> None:
    """Everything at once: a sibling of another team runs beside, the host listens on every kind of socket."""
    dataset = platform.data / "datasets" / "digits"
    dataset.mkdir(parents=True)
    (dataset / "data.bin").write_bytes(b"1234")
    sibling = platform.build(
        own("sibling"), OTHER_TEAM_UID, script="echo secret > secret; sleep 60\n", network="none"
    )
    platform.begin(sibling)
    platform.wait(sibling, "running")
    secret = Path(sibling.workspace, "secret")
    while not secret.exists():
        time.sleep(0.01)
    sibling_pids = processes.find_tagged(own("sibling"))
    assert sibling_pids
    with (
        socket.socket(socket.AF_INET) as port,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        port.bind(("127.0.0.1", 0))
        port.listen()
        named.bind(str(platform.data / "s.sock"))
        named.listen()
        name = f"starverse-contract-{os.getpid()}"
        abstract.bind("\0" + name)
        abstract.listen()
        facts = _probe(
            platform,
            {
                "sibling_paths": [str(secret), sibling.workspace, str(platform.data), sibling.logs],
                "host_pids": [*sibling_pids, os.getpid()],
                "sockets": [str(platform.data / "s.sock"), sibling.channel],
                "abstract_sockets": [name],
                "port": port.getsockname()[1],
                "read_only": ["/dataset/digits", "/run/starverse", str(Path(starverse.__file__).parent)],
            },
            mounts=(Mount(str(dataset), "/dataset/digits"),),
        )
    if not _bwrap_can_disable_userns():
        del facts["attempts"][
            "new user namespace"
        ]  # bubblewrap before 0.8 cannot forbid it; `doctor` says so
    assert _allowed(facts) == []
    assert facts["uid"] == 1000
    assert set(facts["capabilities"].values()) == {0}
    assert facts["routes"] == 0
    assert facts["no_new_privileges"] == "1"
    assert facts["hostname"] == "declared-1"
    assert len(facts["pids"]) <= 4
    assert sorted(path.name for path in dataset.iterdir()) == ["data.bin"]


@pytest.mark.usefixtures("needs_bwrap")
def test_bwrap_shows_what_a_job_needs(platform: Platform) -> None:
    disk = platform.data / "disk"
    disk.mkdir()
    if platform.is_root:
        os.chown(disk, TEAM_UID, TEAM_UID)
    script = """set -e
pwd; echo $HOME; hostname
touch here $HOME/home /tmp/tmp /dev/shm/shm /checkpoint/ck /data/disk/d
cat /etc/passwd > /dev/null; ls /etc/ssl/certs > /dev/null
"$STARVERSE_PYTHON" -c 'import starverse.checkpoint, ssl, sys; print(sys.prefix)'
test ! -e /usr/planted; test -x /run/starverse/script
"""
    spec = platform.build(
        own("shows"), script=script, mounts=(Mount(str(disk), "/data/disk", read_only=False),)
    )
    platform.begin(spec)
    platform.wait(spec, "ended")
    log = Path(spec.logs, "1.out").read_text()
    state = AllocationFolder(spec.folder).read_state()
    assert state is not None
    assert state.exit_code == 0, log
    assert log.splitlines()[:3] == ["/workspace", "/root", "declared-1"]
    owner = platform.workload_uid
    for path in (Path(spec.workspace, "here"), Path(spec.checkpoints, "ck"), disk / "d"):
        assert path.stat().st_uid == owner


@pytest.mark.parametrize("driver", ["bwrap", "process"])
def test_no_driver_runs_anything_as_host_root_or_with_a_capability(platform: Platform, driver: str) -> None:
    if driver == "bwrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    spec = platform.build(own("who"), script="sleep 60 & sleep 60\n", driver=driver)
    platform.begin(spec)
    platform.wait(spec, "running")
    pids = _wait_for_processes(own("who"), 3)
    for pid in pids:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        assert "0" not in status["Uid"].split()
        assert "0" not in status["Gid"].split()
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        if name != "bwrap":  # bubblewrap's own first processes keep what their namespace gives, and no more
            assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0


@pytest.mark.parametrize("driver", ["bwrap", "process"])
def test_kill_9_of_the_launcher_leaves_no_process(platform: Platform, driver: str) -> None:
    name = own("killed")
    if driver == "bwrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    spec = platform.build(
        name, script="setsid sleep 60 & (sleep 60 &) ; trap '' TERM; sleep 60\n", driver=driver
    )
    platform.begin(spec)
    platform.wait(spec, "running")
    _wait_for_processes(name, 4)
    platform.started[-1].send_signal(signal.SIGKILL)
    platform.started[-1].wait()
    give_up = time.monotonic() + 10
    while processes.find_tagged(name):
        assert time.monotonic() < give_up, processes.find_tagged(name)
        time.sleep(0.01)


def test_process_says_what_it_does_not_isolate(platform: Platform) -> None:
    name = own("mounts")
    from starverse.node.sandbox.process import ProcessDriver

    assert {text.split(":")[0] for text in ProcessDriver.cannot} >= {
        "files",
        "network",
        "processes",
        "mounts",
    }
    spec = platform.build(name, driver="process", mounts=(Mount("/usr", "/dataset/x"),))
    platform.begin(spec)
    platform.started[-1].wait(20)
    state = AllocationFolder(spec.folder).read_state()
    assert state is not None
    assert "cannot show /dataset/x" in state.failure


def test_a_root_platform_without_a_team_user_refuses(platform: Platform) -> None:
    if not platform.is_root:
        pytest.skip("only a root platform could run something as root")
    for uid in (None, 0):
        spec = replace(platform.build(own(f"uid-{uid}")), unix_uid=uid)
        platform.begin(spec)
        platform.started[-1].wait(20)
        state = AllocationFolder(spec.folder).read_state()
        assert state is not None
        assert "no unix user" in state.failure
        assert state.ready_at is None


SECRET = "s3cret-\u4e2d\u6587\nsecond line\n"
LOOKS_AT_SECRETS = """cd /run/starverse/secrets
cat token
stat -c '%a %u' . token
for act in 'echo x >> token' 'rm -f token' 'touch new' 'chmod 600 token'; do sh -c "$act" 2>/dev/null && echo "allowed: $act"; done
grep -c . /proc/self/mountinfo >/dev/null; grep ' /run/starverse/secrets ' /proc/self/mountinfo | grep -c tmpfs
cat /proc/*/cmdline /proc/*/environ 2>/dev/null | grep -ac 's3[c]ret'
find / -xdev -type f -size -1M -newer /run/starverse/script -print0 2>/dev/null | xargs -0 grep -l 's3[c]ret' 2>/dev/null
sleep 60
"""  # noqa: E501


@pytest.mark.usefixtures("needs_bwrap")
def test_secrets_are_files_in_memory_and_nowhere_else(platform: Platform) -> None:
    """Read-only inside; not in arguments, environments, logs or any file of the platform once it runs."""
    name = own("secrets")
    spec = platform.build(name, script=LOOKS_AT_SECRETS, secrets=(("token", SECRET), ("other", "x")))
    platform.begin(spec)
    platform.wait(spec, "running")
    log = Path(spec.logs, "1.out")
    give_up = time.monotonic() + 20
    while log.read_text().count("\n") < 6:
        assert time.monotonic() < give_up, log.read_text()
        time.sleep(0.01)
    assert log.read_text() == f"{SECRET}500 1000\n400 1000\n1\n0\n"
    log.unlink()
    for path in platform.data.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert b"s3cret" not in path.read_bytes(), path
    for pid in processes.find_tagged(name):
        assert b"s3cret" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    launcher = Path(f"/proc/{platform.started[-1].pid}")
    assert (
        b"s3cret" not in launcher.joinpath("cmdline").read_bytes() + launcher.joinpath("environ").read_bytes()
    )


def test_a_secret_that_is_no_file_name_is_refused(platform: Platform) -> None:
    for number, name in enumerate(("../token", "", ".", "a/b", "x" * 65)):
        spec = platform.build(own(f"bad-{number}"), secrets=((name, "value"),))
        platform.begin(spec)
        platform.started[-1].wait(20)
        state = AllocationFolder(spec.folder).read_state()
        assert state is not None
        assert state.failure.startswith("secret ")
        assert "value" not in state.failure


@pytest.mark.usefixtures("needs_bwrap")
def test_an_image_and_a_home_that_stays_are_shown(platform: Platform) -> None:
    image = platform.data / "images" / "one"
    (image / "bin").mkdir(parents=True)
    tool = image / "bin" / "tool"
    tool.write_text("#!/bin/sh\necho of the image\n")
    tool.chmod(0o755)
    home = platform.data / "instances" / "i" / "home"
    for name, script in (
        ("first", 'tool; echo kept > "$HOME/file"; echo x > /opt/image/x || echo read-only\n'),
        ("again", "cat /root/file; command -v tool\n"),
    ):
        spec = platform.build(own(name), script=script, image=str(image), home=str(home))
        platform.begin(spec)
        platform.wait(spec, "ended")
        lines = Path(spec.logs, "1.out").read_text().splitlines()
        if name == "first":
            assert (lines[0], lines[-1]) == ("of the image", "read-only")
        else:
            assert lines == ["kept", "/opt/image/bin/tool"]


@pytest.mark.usefixtures("needs_bwrap")
def test_an_instance_takes_connections_as_an_ordinary_user_inside(platform: Platform) -> None:
    """Its agent and every sshd: never host root, without a capability, gone with their launcher."""
    name = own("instance")
    if not Path("/usr/sbin/sshd").exists():
        pytest.skip("openssh-server is not installed: apt-get install openssh-server")
    spec = platform.build(name, interactive=True, home=str(platform.data / "home"))
    platform.begin(spec)
    platform.wait(spec, "running")
    for pid in _wait_for_processes(name, 3):
        status = Path(f"/proc/{pid}/status").read_text()
        facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        assert "0" not in facts["Uid"].split()
        if facts["Name"].strip() != "bwrap":
            assert int(facts["CapEff"], 16) == int(facts["CapPrm"], 16) == 0
    platform.started[-1].send_signal(signal.SIGKILL)
    platform.started[-1].wait()
    give_up = time.monotonic() + 10
    while processes.find_tagged(name):
        assert time.monotonic() < give_up, processes.find_tagged(name)
        time.sleep(0.01)


def test_process_keeps_no_instance_and_no_secret(platform: Platform) -> None:
    for name, changes in (("inst", {"interactive": True}), ("sec", {"secrets": (("a", "b"),)})):
        spec = platform.build(own(name), driver="process", **changes)
        platform.begin(spec)
        platform.started[-1].wait(20)
        state = AllocationFolder(spec.folder).read_state()
        assert state is not None
        assert "use driver bwrap" in state.failure
