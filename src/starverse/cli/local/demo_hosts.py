"""The demo's second act: a GPU host on real data, by real OpenSSH, with a disk that outlives it; checked.

A researcher rents a host with the digits, counts them over ``ssh``, plugs a disk into the running host, stops
it, starts it again without cards, finds everything where it was, and reads what each phase cost.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starverse.cli.local.demo_people import DemoFailed, Person, indented, say

HOST, DISK = "lab", "home"
SSH_SECONDS_MAX = 60
COUNT = """
import ast, os
raw = open("/dataset/digits/labels.npy", "rb").read()
begin = 10 + int.from_bytes(raw[8:10], "little")
shape, labels = ast.literal_eval(raw[10:begin].decode())["shape"], raw[begin:]
print(f"{shape[0]} digits, of each:", *(labels.count(digit) for digit in range(10)))
print("cards:", os.environ.get("CUDA_VISIBLE_DEVICES") or "none")
"""
_KEEP = (
    "cp /dataset/digits/labels.npy /data/home/ && echo seen on cards > /root/note"
    " && sha256sum < /data/home/labels.npy"
)
_LOOK = "cat /root/note && sha256sum < /data/home/labels.npy && echo cards: ${CUDA_VISIBLE_DEVICES:-none}"


@dataclass(slots=True)
class HostsOutcome:
    """What the second act has to show for itself. ``missing``: what kept it from being played."""

    missing: str = ""
    counted: str = ""
    expected: str = ""
    launch_seconds: float = 0.0
    plug_seconds: float = 0.0
    kept: str = ""
    by_cp: str = ""
    stopped: str = ""
    seen: str = ""
    running: dict[str, Any] | None = None
    without_cards: dict[str, Any] | None = None
    charges: tuple[dict[str, Any], ...] = ()
    ledger: dict[str, Any] | None = None


def missing_tools() -> str:
    """What this machine lacks for the act, in words; ``""``: nothing."""
    where = "/usr/local/bin:/usr/bin:/bin:/usr/sbin"
    packages = {"ssh": "openssh-client", "ssh-keygen": "openssh-client", "sshd": "openssh-server"}
    lacks = sorted({package for tool, package in packages.items() if not shutil.which(tool, path=where)})
    return f"apt-get install {' '.join(lacks)}" if lacks else ""


def play_hosts(root: Path, researcher: Person, operator: Person) -> HostsOutcome:
    """Every step, in order."""
    if missing := missing_tools():
        return HostsOutcome(missing=missing)
    say("\n--- A GPU host ---")
    researcher.extra["HOME"] = str(researcher.home)  # its keys are of the demo, not of whoever runs it
    make_key(researcher)
    researcher.run("ssh-key", "add")
    outcome = HostsOutcome(expected=_expected(root / "digits" / "labels.npy"))
    begun = time.monotonic()
    researcher.run("launch", "--card", "rtx4090", "--dataset", "digits", "--name", HOST, "--yes")
    outcome.launch_seconds = time.monotonic() - begun
    outcome.running = researcher.ask("show", HOST)
    outcome.counted = ssh(researcher, "python3 -", COUNT)
    researcher.run("disk", "create", DISK, "--size", "10GiB", "--yes")
    begun = time.monotonic()
    researcher.run("disk", "attach", DISK, HOST)
    outcome.plug_seconds = time.monotonic() - begun
    outcome.kept = ssh(researcher, _KEEP)
    (root / "back").mkdir()
    researcher.run("disk", "cp", f"{DISK}:labels.npy", str(root / "back" / "labels.npy"))
    outcome.by_cp = hashlib.sha256((root / "back" / "labels.npy").read_bytes()).hexdigest()
    researcher.run("stop", HOST)
    outcome.stopped = researcher.ask("show", HOST)["state"]
    researcher.run("start", HOST, "--no-gpu", "--yes")
    outcome.without_cards = researcher.ask("show", HOST)
    outcome.seen = ssh(researcher, _LOOK)
    researcher.run("stop", HOST)
    researcher.run("ps", "--all")
    researcher.run("bill")
    charges = researcher.ask("bill")["charges"]
    outcome.charges = tuple(charge for charge in charges if charge["job"] == f"instance {HOST}")
    researcher.run("rm", HOST, "--yes")
    researcher.run("disk", "rm", DISK, "--yes")
    outcome.ledger = operator.ask("admin", "ledger", "check")
    return outcome


def make_key(person: Person) -> None:
    """A key pair as ``ssh-keygen`` makes it, in the person's own ``~/.ssh``."""
    folder = person.home / ".ssh"
    folder.mkdir(mode=0o700)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{person.name}@laptop"]
    say(f"\n{person.name} $ ssh-keygen -t ed25519")
    subprocess.run([*words, "-f", str(folder / "id_ed25519")], check=True, stdin=subprocess.DEVNULL)


def ssh(person: Person, command: str, stdin: str = "") -> str:
    """Run a command on the host by this machine's own OpenSSH; what it printed."""
    told = person.ask("ssh", HOST)
    shown = f"ssh -p {told['port']} {HOST}@{told['host']} {shlex.quote(command)}"
    say(f"\n{person.name} $ {shown}{' < count_digits.py' if stdin else ''}")
    done = subprocess.run(
        [*told["argv"], command],
        input=stdin,
        env=person.environment(),
        text=True,
        capture_output=True,
        timeout=SSH_SECONDS_MAX,
        check=False,
    )
    say(indented(done.stderr + done.stdout))
    if done.returncode != 0:
        raise DemoFailed(f"ssh ended with exit code {done.returncode}")
    return done.stdout


def report_hosts(outcome: HostsOutcome, say: Callable[[str], None]) -> list[str]:
    """Print every claim with what was found; the claims that are not true."""
    if outcome.missing:
        say(f"\nThe act with a GPU host was left out, for want of OpenSSH: {outcome.missing}")
        return []
    say("\nWhat the host showed")
    failed = []
    for claim, holds, found in _claims(outcome):
        say(f"  {'ok  ' if holds else 'NOT '} {claim}: {found}")
        if not holds:
            failed.append(claim)
    return failed


def _claims(o: HostsOutcome) -> list[tuple[str, bool, str]]:
    running, without = o.running or {}, o.without_cards or {}
    segments = [segment for charge in o.charges for segment in charge["segments"]]
    paid = {tariff: _paid(segments, tariff) for tariff in ("on_demand", "no_gpu")}
    total = sum(charge["total_micro"] for charge in o.charges)
    kept = o.kept.split()[0] if o.kept else "nothing"
    rates = (without.get("price_hour_micro") or 0, running.get("price_hour_micro") or 0)
    return [
        (
            "the host was reachable",
            running.get("state") == "running",
            f"{o.launch_seconds:.1f} s after launch",
        ),
        (
            "real ssh counted the digits of the shelf on its card",
            o.expected in o.counted and "cards: none" not in o.counted,
            o.counted.partition(",")[0] or "nothing",
        ),
        (
            "the disk was plugged into the running host",
            bool(o.kept) and o.plug_seconds < 10,
            f"{o.plug_seconds:.1f} s, command and answer",
        ),
        (
            "what it wrote is read through the API, bit for bit",
            o.by_cp == kept,
            f"labels.npy, sha256 {o.by_cp[:16]}...",
        ),
        ("stopped, it had no card", o.stopped == "stopped", o.stopped),
        (
            "started without cards, none is to be seen",
            without.get("no_gpu") is True and o.seen.endswith("cards: none\n"),
            o.seen.splitlines()[-1] if o.seen else "nothing",
        ),
        (
            "its home and the disk hold what they held",
            o.seen.startswith("seen on cards\n") and kept in o.seen,
            f"sha256 {kept[:16]}...",
        ),
        (
            "without cards an hour costs less",
            0 < rates[0] < rates[1],
            f"CNY {rates[0] / 1e6:.3f} against {rates[1] / 1e6:.3f}",
        ),
        (
            "the bill has both phases, and they add up",
            all(amount > 0 for amount in paid.values()) and sum(paid.values()) == total,
            f"CNY {paid['on_demand'] / 1e6:.6f} with cards, {paid['no_gpu'] / 1e6:.6f} without",
        ),
        ("the books balance", not (o.ledger or {"broken": True}).get("broken"), "ledger check sound"),
    ]


def _paid(segments: list[dict[str, Any]], tariff: str) -> int:
    return sum(segment["amount_micro"] for segment in segments if segment["tariff"] == tariff)


def _expected(labels: Path) -> str:
    """What counting the digits has to say, counted here."""
    raw = labels.read_bytes()
    digits = raw[10 + int.from_bytes(raw[8:10], "little") :]
    each = " ".join(str(digits.count(digit)) for digit in range(10))
    return f"{len(digits)} digits, of each: {each}"
