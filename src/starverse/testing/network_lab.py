"""A host of our own with an internet behind it, in network namespaces: nothing leaves this machine.

::

    internet: 198.51.100.7 (servers), 198.51.100.53 (names), 203.0.113.1 (router)
        |
    host: 203.0.113.2, 10.77.0.2 (private), loopback

Needs root, ``ip``, ``unshare`` and ``nsenter``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

INTERNET, NAMES, ROUTER = "198.51.100.7", "198.51.100.53", "203.0.113.1"
HOST, HOST_PRIVATE = "203.0.113.2", "10.77.0.2"
NAME, NAMED = "mirror.example.org", bytes([198, 51, 100, 7])

_LINKS = f"""
ip link set lo up
ip link add up0 type veth peer name down0 netns $1
ip addr add {HOST}/24 dev up0; ip addr add {HOST_PRIVATE}/24 dev up0; ip link set up0 up
"""
_INTERNET = f"""
ip link set lo up; ip addr add {INTERNET}/32 dev lo; ip addr add {NAMES}/32 dev lo
ip addr add {ROUTER}/24 dev down0; ip link set down0 up
"""

_ECHO = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listens", flush=True)
while True:
    line, _ = listener.accept()
    line.sendall(b"hello from " + sys.argv[3].encode())
    line.close()
"""
_STREAMS = """
import json, socket, sys, threading, time
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listens", flush=True)
block = bytes(1 << 18)
def serve(line):
    began, taken = time.monotonic(), 0
    with line:
        try:
            if line.recv(1) == b"d":
                while True:
                    line.sendall(block)
            while part := line.recv(1 << 20):
                taken += len(part)
                if part.endswith(b"e"):
                    break
            line.sendall(json.dumps([taken, time.monotonic() - began]).encode())
        except OSError:
            pass
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
STREAM = """
import json, socket, sys, threading, time
address, port, seconds, count = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
ways = sys.argv[5]
rates, block = {"u": [], "d": []}, bytes(1 << 18)
end = time.monotonic() + seconds
def run(way):
    taken, began = 0, time.monotonic()
    with socket.create_connection((address, port), 60) as line:
        line.sendall(way.encode())
        while time.monotonic() < end:
            if way == "u":
                line.sendall(block)
            else:
                taken += len(line.recv(1 << 20))
        passed = time.monotonic() - began
        if way == "u":
            line.sendall(b"e")  # not a half-closed line: pasta of 2023 sends the answer on it twice
            taken, passed = json.loads(line.recv(100))
    rates[way].append(taken / passed)
def try_run(way):
    try:
        run(way)
    except (OSError, ValueError) as error:  # it broke, or its end was not counted
        print(type(error).__name__, error, file=sys.stderr)
threads = [threading.Thread(target=try_run, args=(way,)) for way in ways for _ in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({way: sum(rates[way]) for way in ways}))
"""
"""What a workload runs, with address, port, seconds, connections and ways (``u``, ``d``, ``ud``): prints
bytes a second by way, of a server of :meth:`NetworkLab.serve_streams`. A broken connection counts 0."""
_NAME_SERVER = f"""
import socket
listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listener.bind(("{NAMES}", 53))
print("listens", flush=True)
while True:
    asked, whom = listener.recvfrom(512)
    end = asked.index(0, 12) + 5
    known = asked[end - 4:end - 2] == bytes([0, 1])
    head = asked[:2] + bytes([0x81, 0x80, 0, 1, 0, int(known), 0, 0, 0, 0]) + asked[12:end]
    answer = bytes([0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]) + {NAMED!r}
    listener.sendto(head + (answer if known else b""), whom)
"""


class NetworkLab:
    """``command`` is put before what is to run on its host, ``outside`` before what is the internet's."""

    def __init__(self, folder: Path) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        try:
            self._build(folder)
        except BaseException:
            self.close()
            raise

    def serve(self, address: str, port: int, text: str, *, outside: bool = False) -> None:
        """Say ``text`` to whoever connects, on the host or ``outside``."""
        place = self._internet if outside else self._host
        self._python(place, _ECHO, address, str(port), text)

    def serve_streams(self, address: str, port: int) -> None:
        """Outside: send to whoever says ``d`` for as long as it listens; count what comes after ``u``."""
        self._python(self._internet, _STREAMS, address, str(port))

    def close(self) -> None:
        for process in reversed(self._started):
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _build(self, folder: Path) -> None:
        self._host, self._internet = self._hold(), self._hold()
        self._in(self._host, "sh", "-ec", _LINKS, "sh", str(self._internet))
        self._in(self._internet, "sh", "-ec", _INTERNET)
        self._in(self._host, "ip", "route", "add", "default", "via", ROUTER)
        self._python(self._internet, _NAME_SERVER)
        resolver = folder / "resolv.conf"
        resolver.write_text(f"nameserver {NAMES}\n")
        resolver.chmod(0o644)
        mounts = (
            "mount --make-rprivate /; mount --bind $0 /etc/resolv.conf;"
            "mount -t tmpfs -o mode=755 none /dev/net;"
            'mknod -m 666 /dev/net/tun c 10 200; exec "$@"'
        )
        enter = ("nsenter", "-t", str(self._host), "-n")
        self.outside = ("nsenter", "-t", str(self._internet), "-n")
        self.command = (*enter, "unshare", "-m", "sh", "-ec", mounts, str(resolver))

    def _hold(self) -> int:
        """A network namespace, which lives as long as the process answered."""
        process = subprocess.Popen(["unshare", "-n", "sleep", "3600"])
        self._started.append(process)
        own, give_up = Path("/proc/self/ns/net").readlink(), time.monotonic() + 10
        while Path(f"/proc/{process.pid}/ns/net").readlink() == own:
            assert time.monotonic() < give_up
            time.sleep(0.005)
        return process.pid

    def _in(self, place: int, *command: str) -> None:
        done = subprocess.run(
            ["nsenter", "-t", str(place), "-n", *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def _python(self, place: int, code: str, *arguments: str) -> None:
        process = subprocess.Popen(
            ["nsenter", "-t", str(place), "-n", sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE,
        )
        self._started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"listens\n"


def why_no_lab() -> str:
    """Why there can be none on this machine; ``""``: there can."""
    if os.geteuid() != 0:
        return "a network lab needs root"
    missing = [name for name in ("ip", "unshare", "nsenter", "pasta") if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


@contextlib.contextmanager
def open_lab(folder: Path) -> Iterator[NetworkLab]:
    lab = NetworkLab(folder)
    try:
        yield lab
    finally:
        lab.close()
