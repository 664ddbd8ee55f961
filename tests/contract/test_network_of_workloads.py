"""The network of a workload that may reach the internet: what it reaches, and what it must not."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.domain.workloads.launch import LaunchSpec, Limits
from starverse.engines.folders.leftovers import LastCopies
from starverse.engines.local.cleaning import clean_up
from starverse.node.folder import AllocationFolder
from starverse.node.network.pasta import UNSENT_BYTES_MAX
from starverse.testing.launcher_platforms import (
    OBEYING,
    OTHER_TEAM_UID,
    PLATFORM_KINDS,
    NotHere,
    Platform,
    ask,
    open_platform,
    wait_for,
)
from starverse.testing.launches import MIB, own
from starverse.testing.network_lab import (
    HOST,
    HOST_PRIVATE,
    INTERNET,
    NAME,
    ROUTER,
    STREAM,
    NetworkLab,
    open_lab,
    why_no_lab,
)

PORT = 21_210
"""What the platform listens on, and what is listened on outside."""

REACH = """
import json, socket, sys
for line in json.loads(sys.argv[1]):
    address, port, device = line
    link = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    link.settimeout(3)
    try:
        if device:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        link.connect((address, port))
        said = link.recv(100).decode()
    except OSError as error:
        said = type(error).__name__
    print(json.dumps([address, port, device, said]))
"""


@pytest.fixture
def lab() -> Iterator[NetworkLab]:
    if why := why_no_lab():
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="starverse-net-") as folder:
        Path(folder).chmod(0o755)
        with open_lab(Path(folder)) as opened:
            yield opened


@pytest.fixture(params=PLATFORM_KINDS)
def platform(request: pytest.FixtureRequest, tmp_path: Path, lab: NetworkLab) -> Iterator[Platform]:
    try:
        with open_platform(request.param, tmp_path, lab.command) as opened:
            yield opened
    except NotHere as reason:
        pytest.skip(str(reason))


def begin(platform: Platform, name: str = "net", **changes: Any) -> LaunchSpec:
    spec = platform.build(own(name), script=OBEYING, network="internet", **changes)
    platform.begin(spec)
    platform.wait(spec, "running")
    return spec


def reach(spec: LaunchSpec, *wanted: tuple[str, int, str]) -> dict[tuple[str, int, str], str]:
    """What was heard from each (address, port, device to be bound to)."""
    Path(spec.workspace, "reach.py").write_text(REACH)
    said = ask(spec, f"/usr/bin/python3 reach.py '{json.dumps(wanted)}'")
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("[")]
    assert len(lines) == len(wanted), said
    return {(address, port, device): text for address, port, device, text in lines}


def test_the_internet_is_reached_and_the_platform_is_not(platform: Platform, lab: NetworkLab) -> None:
    lab.serve(INTERNET, PORT, "the internet", outside=True)
    lab.serve(ROUTER, PORT, "a neighbour of this host", outside=True)
    for address in (HOST, HOST_PRIVATE, "127.0.0.1"):
        lab.serve(address, PORT, "the platform")
    spec = begin(platform)
    device = ask(spec, "ls /sys/class/net 2>/dev/null; cat /proc/net/dev").split(":")[-2].split()[-1]
    closed = (HOST, HOST_PRIVATE, "127.0.0.1", ROUTER, "169.254.169.254", "::ffff:10.77.0.2")
    wanted = [(address, PORT, bound) for address in closed for bound in ("", device)]
    heard = reach(spec, (INTERNET, PORT, ""), *wanted)
    assert heard.pop((INTERNET, PORT, "")) == "hello from the internet"
    assert not [key for key, said in heard.items() if "hello" in said]
    assert ask(spec, f"getent ahostsv4 {NAME} | head -1").startswith(INTERNET)
    most_on_its_way = ask(spec, "cat /proc/sys/net/ipv4/tcp_wmem").splitlines()[0].split()[2]
    assert int(most_on_its_way) == UNSENT_BYTES_MAX  # else a fast upload stalls at pasta and is reset


def test_workloads_do_not_reach_each_other(platform: Platform, lab: NetworkLab) -> None:
    other = begin(platform, "other", uid=OTHER_TEAM_UID)
    listening = "import socket; socket.create_server(('', 21211)).accept()"
    ask(other, f'/usr/bin/python3 -c "{listening}" > /dev/null 2>&1 &')
    wait_for(lambda: f"{21211:X}" in ask(other, "cat /proc/net/tcp"))
    spec = begin(platform)
    addresses = {INTERNET, HOST, HOST_PRIVATE, ROUTER}
    heard = reach(spec, *((address, 21211, "") for address in addresses))
    assert not [key for key, said in heard.items() if "hello" in said]
    assert set(heard.values()) <= {"ConnectionRefusedError", "OSError", "TimeoutError"}


def test_an_operator_may_open_a_private_network(platform: Platform, lab: NetworkLab) -> None:
    lab.serve(ROUTER, PORT, "the campus mirror", outside=True)
    spec = begin(platform, network_reachable=(f"{ROUTER}/32",))
    assert reach(spec, (ROUTER, PORT, ""))[ROUTER, PORT, ""] == "hello from the campus mirror"


def test_rules_cannot_be_undone_inside(platform: Platform, lab: NetworkLab) -> None:
    lab.serve(HOST, PORT, "the platform")
    spec = begin(platform)
    said = ask(
        spec,
        "ip route add 10.0.0.0/8 dev lo; nft flush ruleset; unshare -Urn true;"
        "nsenter -t 1 -n true; ip link add d type dummy",
    )
    assert "exit 0" not in said
    assert "hello" not in reach(spec, (HOST, PORT, ""))[HOST, PORT, ""]


def pastas(spec: LaunchSpec) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and spec.folder.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
            elif folder.name.isdigit() and (folder / "comm").read_text().startswith("pasta"):
                tag = f"STARVERSE_ALLOCATION_ID={spec.allocation_id}".encode()
                if tag in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_of_a_network_is_left(platform: Platform, lab: NetworkLab, killed: bool) -> None:
    spec = begin(platform)
    assert pastas(spec)
    if killed:
        platform.started[-1].kill()
        platform.started[-1].wait()
        clean_up(AllocationFolder(spec.folder), lambda: None, LastCopies(patience_seconds=60))
    else:
        platform.want(spec, stop=True)
        platform.started[-1].wait(20)
    wait_for(lambda: not pastas(spec), what="pasta goes on")
    assert not Path(spec.folder, "network", "netns").is_symlink()


RATE = 8_000_000


def test_a_neighbour_that_goes_flat_out_leaves_a_workload_its_rate(
    platform: Platform, lab: NetworkLab
) -> None:
    lab.serve_streams(INTERNET, PORT)
    limits = Limits(cpus=1.0, memory_bytes=512 * MIB, network_bytes_per_second=RATE)
    neighbour = begin(platform, "neighbour", uid=OTHER_TEAM_UID, limits=limits)
    spec = begin(platform, limits=limits)
    for one in (neighbour, spec):
        assert json.loads(Path(one.folder, "network", "rate.json").read_text())["refused"] == ""
        Path(one.workspace, "stream.py").write_text(STREAM)
    alone = stream(spec, 0.8)
    ask(neighbour, f"/usr/bin/python3 stream.py {INTERNET} {PORT} 4 4 ud > out 2>&1 &")
    wait_for(lambda: sent(neighbour) > RATE // 8, what="the neighbour sends")
    beside = stream(spec, 0.8)
    for way in "ud":
        assert RATE / 3 < alone[way] < RATE * 1.5
        assert beside[way] > alone[way] / 2


def stream(spec: LaunchSpec, seconds: float) -> dict[str, float]:
    """Bytes a second, up and then down: at once, what acknowledges one waits in the other's queue."""
    run = f"/usr/bin/python3 stream.py {INTERNET} {PORT} {seconds} 1"
    said = ask(spec, f"{run} u; {run} d")
    up, down = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    return {**up, **down}


def sent(spec: LaunchSpec) -> int:
    rows = [line.split() for line in ask(spec, "cat /proc/net/dev").splitlines() if ":" in line]
    return sum(int(row[9]) for row in rows if row[0] not in ("lo:", "incoming0:"))
