"""Keep the data of a release, so that later versions are tested against it: a real run, then a backup.

    python scripts/keep_release_data.py tests/data/releases/0.1.0

Starts a real server on declared cards, has people do everything that leaves rows, and backs it up while a
job runs and others wait. Run it on the commit of the release (``PYTHONPATH`` may name that commit's ``src``:
the server is its, the backup command is this checkout's).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from starverse.domain.pricing.price_book_yaml import shipped_price_book_text
from starverse.examples.digits import write_digits
from starverse.testing.in_time import wait_for
from starverse.testing.live_checks import COUNTER, let_finish
from starverse.testing.live_person import Person
from starverse.testing.live_server import Ground, LiveServer

SAVING = """#SBATCH --checkpoint=state
mkdir -p state
i=0; while [ ! -e finish ]; do i=$((i+1)); echo $i > state/count; sleep 0.2; done
"""
ONE = "--gres=gpu:rtx4090:1"


def main(arguments: list[str]) -> int:
    """Make the folder; 2 without its name."""
    if len(arguments) != 1:
        sys.stderr.write("name the new folder, such as tests/data/releases/0.1.0\n")
        return 2
    settings = dict(Ground().settings) | {"policy.checkpoint_interval_seconds": "2"}
    with LiveServer(Ground(settings=settings)) as server, tempfile.TemporaryDirectory() as folder:
        ann, bob = server.person("ann", yuan=50), server.person("bob", yuan=200)
        _spend(ann)
        _operate(server, Path(folder))
        _end_in_every_way(ann)
        _be_reclaimed(ann, bob)
        _lose_a_launcher(server, ann)
        running = ann.sbatch(COUNTER, ONE)
        ann.wait_log(running, "0:5\n")
        ann.sbatch("true\n", ONE, f"--dependency=afterok:{running}")
        ann.sbatch("true\n", ONE, "--begin=2030-01-01")
        _back_up(server, Path(arguments[0]))
        let_finish(ann, running)
        ann.wait_end(running)
    return 0


def _spend(ann: Person) -> None:
    paid = ann.client.money.top_up("20")
    ann.run("refund", str(paid["id"]), "5", "--yes")
    ann.run("topup", "--auto-below", "1", "--amount", "10", "--yes")
    ann.run("token", "create", "script", "--expires-in-days", "30")
    ann.run("team", "create", "vision")
    ann.run("team", "add", "vision", "bob@example.org")


def _operate(server: LiveServer, folder: Path) -> None:
    book = folder / "next.yaml"
    book.write_text(shipped_price_book_text().replace("2026-03-01T00:00:00", "2030-04-01T00:00:00"), "utf-8")
    write_digits(folder / "digits")
    operator = server.operator
    operator.run("admin", "price", "set", str(book), "--yes")
    operator.run("admin", "team", "grant", "vision", "coupon", "30", "--reason", "workshop", "--yes")
    operator.run("admin", "account", "set", "ann@example.org", "--member", "edu")
    about = ("--title", "Digits", "--source", "UCI", "--licence", "CC-BY-4.0")
    operator.run("dataset", "add", "digits", str(folder / "digits"), *about)


def _end_in_every_way(ann: Person) -> None:
    ended = [
        ann.sbatch("echo 你好; sleep 2\n", ONE, "--job-name=训练", "--comment=thesis"),
        ann.sbatch("exit 3\n", ONE),
        ann.sbatch("kill -9 $$\n", ONE),
        ann.sbatch("sleep 60\n", ONE, "--time=0:05"),
    ]
    array = ann.sbatch("sleep 1\n", ONE, "--array=1-3%2")
    gone = ann.sbatch("sleep 600\n", ONE)
    ann.wait_state(gone, "running")
    ann.run("job", "cancel", gone, "--yes")
    for number in (*ended, gone, *(f"{array}_{task}" for task in (1, 2, 3))):
        ann.wait_end(number, 60)


def _be_reclaimed(ann: Person, bob: Person) -> None:
    spot = ann.sbatch(SAVING, "--gres=gpu:rtx4090:2", "--tariff=spot")
    ann.wait_state(spot, "running")
    claimant = bob.sbatch("sleep 3\n", "--gres=gpu:rtx4090:8")
    ann.wait_state(spot, "queued", seconds=60)
    bob.wait_end(claimant, 60)
    ann.wait_state(spot, "running", seconds=60)
    let_finish(ann, spot)
    ann.wait_end(spot, 60)


def _lose_a_launcher(server: LiveServer, ann: Person) -> None:
    lost = ann.sbatch(SAVING, ONE)
    ann.wait_state(lost, "running")
    launcher = server.launcher(str(ann.runs(lost)[0]["id"]))
    assert launcher is not None
    os.kill(launcher, signal.SIGKILL)
    wait_for(lambda: len(ann.runs(lost)) == 2, "a second run")
    ann.wait_state(lost, "running")
    let_finish(ann, lost)
    ann.wait_end(lost, 60)


def _back_up(server: LiveServer, place: Path) -> None:
    command = [sys.executable, "-m", "starverse.cli.remote.entry", "admin", "backup", str(place.absolute())]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*command, "--data", str(server.data), "--without-secrets"], env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
