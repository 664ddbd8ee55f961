"""A lab comes up by itself, beside another one and for an ordinary user, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from starverse.testing.in_time import wait_for
from starverse.testing.live_person import clean_environment
from starverse.testing.ordinary_users import ORDINARY_UID, ordinary_python
from starverse.testing.slurm_lab import LabBroken, SlurmLab

pytestmark = pytest.mark.skipif(bool(SlurmLab.missing()), reason=SlurmLab.missing() or "there can be a lab")

OWNER = """
import sys, time
from pathlib import Path
from starverse.testing.slurm_lab import SlurmLab
with SlurmLab(nodes=2) as lab:
    lab.command("sbatch", "-D", "/", "-o", "/dev/null", "--gres=gpu:rtx4090:2", "--wrap", "sleep 300")
    while "RUNNING" not in lab.command("squeue", "-h", "-o", "%T"):
        time.sleep(0.05)
    print(lab.folder, flush=True)
    sys.stdin.read()
"""


def processes_of(folder: str) -> list[str]:
    """Whoever names the folder in its command line or its environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"{folder}/".encode() in words:
                found.append(words.replace(b"\0", b" ").decode("utf-8", "replace")[:100])
    return found


def test_two_labs_at_once_know_nothing_of_each_other() -> None:
    with SlurmLab(nodes=2) as first, SlurmLab(nodes=3, card_type="a100") as second:
        folders = [str(first.folder), str(second.folder)]
        assert first.command("sinfo", "-h", "-N", "-o", "%N", "-p", "all").split() == ["gpu001", "gpu002"]
        assert "gpu:a100:8" in second.command("sinfo", "-h", "-o", "%G")
        assert first.rest_url != second.rest_url
    assert [processes_of(folder) for folder in folders] == [[], []]
    assert not any(Path(folder).exists() for folder in folders)


def test_what_a_killed_owner_left_is_swept() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    )
    try:
        assert owner.stdout is not None
        folder = owner.stdout.readline().strip()
        assert processes_of(folder)
        assert Path(folder) not in SlurmLab.sweep_abandoned()
    finally:
        owner.kill()
        owner.communicate()
    SlurmLab.sweep_abandoned()
    wait_for(
        lambda: not Path(folder).exists(), "its end, by us or by a lab that another test starts just now"
    )
    assert processes_of(folder) == []
    assert not Path(folder).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root starts this test of an ordinary user")
def test_an_ordinary_user_has_a_lab_without_munge() -> None:
    with tempfile.TemporaryDirectory(prefix="starverse-python-") as place:
        Path(place).chmod(0o755)
        python = ordinary_python(Path(place))
        if python is None:
            pytest.skip("no Python that an ordinary user may execute")
        done = own_a_lab(python)
    assert done.returncode == 0, done.stderr
    folder = done.stdout.strip()
    assert processes_of(folder) == []
    assert not Path(folder).exists()


def own_a_lab(python: str) -> subprocess.CompletedProcess[str]:
    """An ordinary user's lab, from its start to its end."""
    return subprocess.run(
        [python, "-c", OWNER],
        input="",
        capture_output=True,
        text=True,
        cwd="/",
        env=clean_environment(),
        user=ORDINARY_UID,
        group=ORDINARY_UID,
        extra_groups=[],
        timeout=60,
        check=False,
    )


def test_a_lab_that_cannot_come_up_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(LabBroken), SlurmLab(tmp_path / "lab", nodes=1, extra="NoSuchKey=1"):
        pass
    assert processes_of(str(tmp_path / "lab")) == []


def test_a_node_that_dies_is_dead_and_comes_back() -> None:
    with SlurmLab(nodes=2) as lab:
        lab.command("sbatch", "-D", "/", "-o", "/dev/null", "-w", "gpu002", "--wrap", "sleep 300")
        wait_for(lambda: "RUNNING" in lab.command("squeue", "-h", "-o", "%T"), "a job that runs")
        lab.kill_node("gpu002")
        lab.set_node("gpu002", "down")
        assert "gpu002 down" in lab.command("sinfo", "-h", "-N", "-o", "%N %T")
        lab.start_node("gpu002")
        wait_for(lambda: "gpu002 idle" in lab.command("sinfo", "-h", "-N", "-o", "%N %T"), "its return")


def test_signals_are_for_processes_of_the_lab_alone(tmp_path: Path) -> None:
    """A stale pid file names somebody else: the lab lets them live."""
    bystander = subprocess.Popen(["/bin/sleep", "60"])
    try:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "slurmctld.pid").write_text(f"{bystander.pid}\n")
        SlurmLab.sweep(tmp_path)
        assert bystander.poll() is None
    finally:
        bystander.send_signal(signal.SIGKILL)
        bystander.wait()
