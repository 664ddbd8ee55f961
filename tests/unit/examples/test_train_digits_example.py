"""The demo's training: same bytes however often it is stopped, and good enough on held-out digits."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from starverse.checkpoint import published
from starverse.examples import digits as digits_module
from starverse.examples.digits import FILES, write_digits

EXAMPLES = Path(digits_module.__file__).parent


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    write_digits(folder)
    return folder


def start(digits: Path, where: Path, epochs: int = 60, every: int = 3) -> subprocess.Popen[str]:
    where.mkdir(exist_ok=True)
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("STARVERSE_", "SLURM_"))},
        "STARVERSE_PYTHON": sys.executable,
        "STARVERSE_CHECKPOINT_DIR": str(where / "checkpoint"),
        "SLURM_SUBMIT_DIR": str(where),
        "DIGITS_DIR": str(digits),
        "DIGITS_EPOCHS": str(epochs),
        "DIGITS_EVERY": str(every),
        "STARVERSE_NOTICE_FILE": str(where / "notice.json"),
    }
    return subprocess.Popen(
        ["/bin/bash", "train_digits.sh"], cwd=EXAMPLES, env=environment, stdout=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    text, _ = process.communicate(timeout=120)
    return process.returncode, text


def test_the_data_set_has_the_same_bytes_every_time(digits: Path, tmp_path: Path) -> None:
    again = write_digits(tmp_path)
    assert tuple(path.name for path in again) == FILES
    assert [path.read_bytes() for path in again] == [(digits / name).read_bytes() for name in FILES]
    assert "CC BY 4.0" in (tmp_path / "LICENSE.txt").read_text()


@pytest.mark.serial
def test_stopped_killed_and_resumed_it_ends_with_the_same_weights(digits: Path, tmp_path: Path) -> None:
    code, whole = finish(start(digits, tmp_path / "whole"))
    assert code == 0
    broken = tmp_path / "broken"
    process = start(digits, broken)
    checkpoints = broken / "checkpoint"
    wait_for_checkpoints(process, checkpoints, 1)
    (broken / "notice.json").write_text('{"reason": "reclaimed", "deadline": "2026-01-01T00:00:00Z"}')
    code, text = finish(process)
    assert code == 99
    assert "notice (reclaimed): saved epoch" in text
    (broken / "notice.json").unlink()
    process = start(digits, broken)
    wait_for_checkpoints(process, checkpoints, published(checkpoints)[-1].step + 1)
    process.kill()
    finish(process)
    shutil.rmtree(published(checkpoints)[-1].path / "arrays")
    code, text = finish(start(digits, broken))
    assert code == 0
    assert "resumed from step-" in text
    weights = (broken / "final_weights.bin").read_bytes()
    assert weights == (tmp_path / "whole/final_weights.bin").read_bytes()
    digest = hashlib.sha256(weights).hexdigest()
    assert f"final weights sha256 {digest}" in text
    assert f"final weights sha256 {digest}" in whole
    found = re.search(r"held-out accuracy (0\.\d+)", whole)
    assert found is not None
    assert float(found[1]) >= 0.95
    assert re.search(r"epoch 60/60 loss \d+\.\d{4} held-out 0\.\d{3} eta 0s", whole)


def wait_for_checkpoints(process: subprocess.Popen[str], folder: Path, step: int) -> None:
    while not any(item.step >= step for item in published(folder)):
        assert process.poll() is None, "the training ended before it saved"


@pytest.mark.serial
def test_the_bash_example_counts_on_after_a_notice(tmp_path: Path) -> None:
    environment = {**os.environ, "COUNT_TO": "1000000", "COUNT_PAUSE": "0"}
    command = ["/bin/bash", str(EXAMPLES / "count.sh")]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        while not (tmp_path / "state/count").exists():
            assert process.poll() is None
        process.send_signal(10)
        assert process.stdout is not None
        text = process.stdout.read()
        assert process.wait() == 99
    saved = int((tmp_path / "state/count").read_text())
    assert f"notice: saved {saved}" in text
    environment["COUNT_TO"] = str(saved + 3)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"counting from {saved}", f"counted to {saved + 3}"]
