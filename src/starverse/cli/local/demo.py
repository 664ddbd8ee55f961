"""``starverse demo``: the main job end to end on real data, as people would type it.

Starts a platform on a free loopback port with a temporary data folder and declared cards, then runs the
product's own commands against it as an operator, a researcher and a second team, and checks what came out.
Exits non-zero when anything it claims is not true.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from starverse.cli.local.demo_ground import Ground, make_folder, open_ground
from starverse.cli.local.demo_hosts import play_hosts, report_hosts
from starverse.cli.local.demo_people import DemoFailed, Person, indented, say, wait_for
from starverse.cli.local.demo_report import WHERE_NEXT, Outcome, report

GRACE_SECONDS = 10


@click.command("demo")
@click.option(
    "--engine",
    type=click.Choice(["local", "slurm"]),
    default="local",
    show_default=True,
    help="Where jobs run; slurm starts a cluster of four nodes for the demo alone.",
)
@click.option(
    "--db",
    type=click.Choice(["sqlite", "postgresql"]),
    default="sqlite",
    show_default=True,
    help="Database; postgresql starts a server for the demo alone.",
)
@click.option("--keep", is_flag=True, help="Leave the data folder behind.")
def command(engine: str, db: str, keep: bool) -> None:
    """Rent, train on spot, be reclaimed, resume, finish, and read the bill: on real data, checked."""
    started = time.monotonic()
    signal.signal(signal.SIGTERM, _leave)  # so that what it started ends with it
    root = Path(tempfile.mkdtemp(prefix="starverse-demo-"))
    try:
        with open_ground(engine, db) as ground, platform(root, ground) as api:
            outcome = play(root, api, ground)
            hosts = play_hosts(root, *_people(root, api))
            failed = report(outcome, say) + report_hosts(hosts, say)
        say(f"\n{WHERE_NEXT}")
        say(f"\nthe demo took {time.monotonic() - started:.0f} s")
    finally:
        if keep:
            say(f"the data folder is kept: {root}")
        else:
            remove(root)
    if failed:
        raise DemoFailed(f"{len(failed)} of the demo's claims are not true: {'; '.join(failed)}")


@contextlib.contextmanager
def platform(root: Path, ground: Ground) -> Iterator[str]:
    """A platform of its own for the demo, on a free port; ended again by process id."""
    data = root / "data"
    log = (root / "server.log").open("w")
    words = ["up", "--port", "0", "--data", str(data), *ground.words, "--grace", str(GRACE_SECONDS)]
    say(f"$ starverse {' '.join(words)}")
    server = subprocess.Popen(
        [sys.executable, "-m", "starverse.cli.remote.entry", *words],
        env={**os.environ, **ground.environment},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        url_file = data / "api-url"
        wait_for(lambda: url_file.exists() or server.poll() is not None, 60, "the server's start")
        if server.poll() is not None:
            raise DemoFailed(f"the server did not start:\n{(root / 'server.log').read_text()}")
        say(f"  {ground.said}")
        yield url_file.read_text().strip()
    finally:
        server.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
        if server.poll() is None:
            server.kill()
            server.wait()
        log.close()


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def remove(root: Path) -> None:
    """Remove the demo's folder; those of datasets are read-only, to their owner too."""
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o700)
    shutil.rmtree(root)


def play(root: Path, api: str, ground: Ground) -> Outcome:
    """Every step, in order."""
    from starverse.examples.digits import write_digits

    researcher, operator = _people(root, api)
    rival = Person("second team", root / "rival", api)
    researcher.run("register", "researcher@example.org")
    wallet = researcher.ask("wallet")
    write_digits(root / "digits")
    operator.run(
        "dataset",
        "add",
        "digits",
        str(root / "digits"),
        "--title",
        "1,797 handwritten digits",
        "--source",
        "UCI Machine Learning Repository, 10.24432/C50P49",
        "--licence",
        "CC-BY-4.0",
    )
    operator.run("dataset", "verify", "digits")
    dataset = researcher.ask("dataset", "show", "digits")
    folder = submit_folder(root)
    reference = start_reference(root, folder)
    researcher.run(
        "sbatch",
        "--tariff",
        "spot",
        *ground.spot_words,
        "train_digits.sh",
        folder=folder,
    )
    follower = LogFollower(researcher, "1")
    wait_for(lambda: has_checkpoint(researcher, "1"), 60, "the first checkpoint of the spot job")
    rival.run("register", "second@example.org")
    rival.run("topup", "50")
    rival.run("sbatch", "all_cards.sh", folder=make_folder(root, ground))
    rival_job = wait_end(rival, "2", 90)
    job = wait_end(researcher, "1", 150)
    follower.finish()
    rival_log = rival.run("job", "logs", "2", shown=bool(ground.rival_log))
    finish_reference(reference)
    researcher.run("cp", "1:final_weights.bin", str(root / "final_weights.bin"), shown=False)
    say("\nresearcher $ starverse bill --job 1")
    text = researcher.run("bill", "--job", "1", shown=False)
    say(indented(text))
    return Outcome(
        wallet_at_start=wallet,
        job=job,
        rival=rival_job,
        rival_log=rival_log,
        bill=researcher.ask("bill", "--job", "1"),
        bill_text=text,
        record=researcher.ask("job", "record", "1"),
        ledger=operator.ask("admin", "ledger", "check"),
        log=follower.lines,
        weights=(root / "final_weights.bin").read_bytes(),
        reference=(root / "reference" / "final_weights.bin").read_bytes(),
        dataset=dataset,
        ground=ground,
    )


def _people(root: Path, api: str) -> tuple[Person, Person]:
    """The researcher and the operator."""
    token = {"STARVERSE_TOKEN_FILE": str(root / "data/operator-token")}
    return Person("researcher", root / "researcher", api), Person("operator", root / "operator", api, token)


def submit_folder(root: Path) -> Path:
    """A folder with the shipped example, as a researcher would have it."""
    from importlib.resources import files

    folder = root / "my-paper"
    folder.mkdir()
    for name in ("train_digits.sh", "train_digits.py"):
        (folder / name).write_text(files("starverse.examples").joinpath(name).read_text("utf-8"), "utf-8")
    return folder


def start_reference(root: Path, folder: Path) -> subprocess.Popen[bytes]:
    """The same training beside the platform, never interrupted: what the resumed run must equal."""
    out = root / "reference"
    out.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("STARVERSE_", "SLURM_"))}
    environment |= {
        "DIGITS_DIR": str(root / "digits"),
        "SLURM_SUBMIT_DIR": str(out),
        "STARVERSE_CHECKPOINT_DIR": str(out / "checkpoints"),
    }
    log = (out / "log").open("wb")
    return subprocess.Popen(
        [sys.executable, str(folder / "train_digits.py")], cwd=out, env=environment, stdout=log, stderr=log
    )


def finish_reference(reference: subprocess.Popen[bytes]) -> None:
    if reference.poll() is None:
        say("\n(the same training, never interrupted, ends beside it: its weights are compared below)")
    if reference.wait(180) != 0:
        raise DemoFailed("the uninterrupted run beside failed")


class LogFollower:
    """Prints a job's log live, each line with its job, until the job has ended."""

    def __init__(self, person: Person, job: str) -> None:
        import threading

        say(f"\n{person.name} $ starverse job logs -f {job}")
        self.lines: list[str] = []
        self._process = person.start("job", "logs", "-f", job)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines.append(line.rstrip("\n"))
            say(f"  | {self.lines[-1]}")

    def finish(self) -> None:
        """Wait for the end of the log."""
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired as late:
            self._process.kill()
            raise DemoFailed("the log did not end with its job") from late
        self._thread.join(5)


def has_checkpoint(person: Person, job: str) -> bool:
    """Whether a checkpoint of a job is there; raises :class:`DemoFailed` when it cannot come any more."""
    found = person.ask("job", "show", job)
    if found["state"] == "failed" or found["reason"] == "start_failed":
        raise DemoFailed(f"job {job} did not start: {found['message']}")
    return found.get("checkpoint") is not None


def wait_end(person: Person, job: str, seconds: float) -> dict[str, Any]:
    """Wait until a job has ended; it as it then stands."""
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(person.ask("job", "show", job))
        return found["state"] in ("succeeded", "failed", "cancelled")

    wait_for(ended, seconds, f"the end of job {job}", every=0.5)
    return found
