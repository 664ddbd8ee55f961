"""Benchmark 15, people's channel: SSH through the gateway beside plain sshd, in the same run.

Behind both is the same ``sshd -i`` in the same sandbox; plain is OpenSSH's client on a socket that leads
straight to it. They take turns within a round, figures are medians over the rounds: a sign-in with a command,
megabytes a second both ways, and the round trip of one byte on a session that is open already. Two more plain
figures tell what the ciphers do, since the gateway offers AES-GCM alone. Needs bubblewrap and openssh-server.

    python -m benchmarks.gateway [--rounds 7] [--mib 256] [--port 0] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.report import Figure, Report, emit
from starverse.testing.gateway_sites import LISTEN, GatewaySite, Visitor, listen, open_gateway_site

NUMBER = 15
NAME = "SSH through the gateway"
TRIPS = 300
AT_ONCE = 16
GCM = ("-o", "Ciphers=aes128-gcm@openssh.com")


class Ways:
    """Command lines of OpenSSH to the same inside: through the gateway, and straight."""

    def __init__(self, visitor: Visitor, site: GatewaySite, plain_port: int) -> None:
        key = str(site.keys.client_key)
        self.gateway = visitor.ssh("digits", "true")[:-1]
        self.plain = [
            *("ssh", "-F", "/dev/null", "-i", key, "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"),
            *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"),
            *("-p", str(plain_port), f"user@{LISTEN}"),
        ]
        self.plain_gcm = [self.plain[0], *GCM, *self.plain[1:]]

    def all(self) -> dict[str, list[str]]:
        return {"gateway": self.gateway, "plain sshd": self.plain, "plain sshd, AES-GCM": self.plain_gcm}


@contextlib.contextmanager
def plain_sshd(site: GatewaySite) -> Iterator[int]:
    """A port where each connection is an ``sshd -i`` of its own, with nobody between."""
    with listen() as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    line, _ = listener.accept()
                    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    with line:
                        site.sshd.start_on(line)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def measure(rounds: int, mib: int, site: GatewaySite, plain_port: int) -> Report:
    """Take turns over all ways, after one turn that only warms up."""
    who = site.world.team("bench")
    site.instance(who, "digits")
    ways = Ways(site.visitor(who), site, plain_port).all()
    taken: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds + 1):
        for way, command in ways.items():
            for what, value in one_turn(command, mib).items():
                if turn:
                    taken.setdefault((what, way), []).append(value)
    median = {key: statistics.median(found) for key, found in taken.items()}
    figures = []
    for what, unit in (
        ("sign-in and a command", "s"),
        ("16 of them at once", "s"),
        ("out of the instance", "MB/s"),
        ("into the instance", "MB/s"),
        ("round trip of a byte", "s"),
    ):
        for peer in ("plain sshd", "plain sshd, AES-GCM"):
            figures.append(Figure(what, median[what, "gateway"], unit, peer, median[what, peer]))
    conditions = {
        "rounds": rounds,
        "mib": mib,
        "trips": TRIPS,
        "spread": {
            f"{what}, {way}": f"{min(found):.4g}..{max(found):.4g}" for (what, way), found in taken.items()
        },
    }
    return Report(NUMBER, NAME, figures, conditions)


def one_turn(command: Sequence[str], mib: int) -> dict[str, float]:
    """Every figure of one way, once."""
    megabytes = mib * 1.048576
    zeros = f"head -c {mib}M /dev/zero"
    return {
        "sign-in and a command": seconds_of([*command, "true"]),
        "16 of them at once": seconds_of_many([*command, "true"]),
        "out of the instance": megabytes / seconds_of([*command, zeros]),
        "into the instance": megabytes / seconds_of_input([*command, "cat > /dev/null"], mib),
        "round trip of a byte": trip_seconds([*command, "cat"]),
    }


def seconds_of(command: Sequence[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def seconds_of_many(command: Sequence[str]) -> float:
    begun = time.perf_counter()
    started = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for _ in range(AT_ONCE)
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        raise RuntimeError(f"{codes} of {command}")
    return time.perf_counter() - begun


def seconds_of_input(command: Sequence[str], mib: int) -> float:
    with tempfile.TemporaryFile() as source:
        os.posix_fallocate(source.fileno(), 0, mib * 1024**2)
        begun = time.perf_counter()
        subprocess.run(command, check=True, stdin=source, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begun


def trip_seconds(command: Sequence[str]) -> float:
    """Median of many bytes sent and come back, one after another."""
    samples = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(TRIPS):
            begun = time.perf_counter()
            process.stdin.write(b"x")
            process.stdout.read(1)
            samples.append(time.perf_counter() - begun)
        process.stdin.close()
    return statistics.median(samples)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 0 whatever the ratios are."""
    parser = argparse.ArgumentParser(prog="gateway", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--port", type=int, default=0, help="of the gateway; 0: a free one")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="gateway-") as name,
        open_gateway_site("sqlite", Path(name), port=given.port) as site,
        plain_sshd(site) as plain_port,
    ):
        emit(measure(given.rounds, given.mib, site, plain_port), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
