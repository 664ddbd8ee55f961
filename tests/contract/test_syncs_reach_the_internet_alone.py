"""What a copy between a disk and a remote reaches: the internet, and neither this host nor its networks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.testing.network_lab import HOST, HOST_PRIVATE, INTERNET, NAME, NetworkLab, open_lab, why_no_lab

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(why_no_lab()), reason=why_no_lab() or "there is a lab"),
    pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed"),
]
UID = 200_321
COPY = """
import json, sys
from starverse.domain.catalog.disks import SyncDirection
from starverse.domain.catalog.syncs import CopyEnd, CopyOrder
from starverse.node.rclone.copier import RcloneCopier
tree, url, uid, *reachable = sys.argv[1:]
config = f"[starverse-remote]\\ntype = webdav\\nurl = {url}\\n"
order = CopyOrder("one", SyncDirection.PULL, tree, "", "", config, (), True, False, None, 1, int(uid))
copier = RcloneCopier(reachable=reachable)
assert not copier.missing(), copier.missing()
with copier.start(order) as copying:
    while not isinstance(told := copying.wait(1.0), CopyEnd):
        copying.go_on()
print(json.dumps([told.ending, told.message]))
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetworkLab]:
    with open_lab(tmp_path_factory.mktemp("lab")) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(lab: NetworkLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that is served in the internet, and on every address of the host."""
    root = tmp_path_factory.mktemp("served")
    (root / "file").write_text("from the remote")
    begun = []
    for place, address in ((lab.outside, INTERNET), (lab.command, "0.0.0.0")):
        words = ("rclone", "serve", "webdav", str(root), "--addr", f"{address}:8080", "--config", "/dev/null")
        begun.append(subprocess.Popen([*place, *words], stderr=subprocess.PIPE))
    try:
        for process in begun:
            assert process.stderr is not None
            assert any(b"Server started" in line for line in process.stderr)
        yield root
    finally:
        for process in begun:
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()


def copy(lab: NetworkLab, tree: Path, url: str, *reachable: str) -> Any:
    (tree / "data").mkdir(parents=True)
    os.chown(tree / "data", UID, UID)
    words = [*lab.command, sys.executable, "-c", COPY, str(tree), url, str(UID), *reachable]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def pastas() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith((b"pasta", b"pasta.avx2")) and process.stat().st_uid == UID:
                found.append(process.name)
        except OSError:
            continue
    return found


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("host", [INTERNET, NAME])
def test_a_remote_in_the_internet_is_reached(lab: NetworkLab, tmp_path: Path, host: str) -> None:
    tree = tmp_path / "disk"
    assert copy(lab, tree, f"http://{host}:8080") == ["done", ""]
    assert (tree / "data" / "file").read_text() == "from the remote"
    assert sorted(path.name for path in tree.iterdir()) == ["data"]
    until = time.monotonic() + 10
    while pastas():
        assert time.monotonic() < until, "its network outlives it"
        time.sleep(0.05)


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("host", ["127.0.0.1", HOST, HOST_PRIVATE])
def test_the_host_of_the_platform_is_not(lab: NetworkLab, tmp_path: Path, host: str) -> None:
    ending, message = copy(lab, tmp_path / "disk", f"http://{host}:8080")
    assert ending == "interrupted"
    assert "connect" in message
    assert list((tmp_path / "disk" / "data").iterdir()) == []


@pytest.mark.usefixtures("served")
def test_a_private_network_that_the_operator_names_is_reached(lab: NetworkLab, tmp_path: Path) -> None:
    assert copy(lab, tmp_path / "disk", f"http://{HOST_PRIVATE}:8080", f"{HOST_PRIVATE}/32") == ["done", ""]
