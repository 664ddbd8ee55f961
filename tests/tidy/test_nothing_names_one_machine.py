"""What is tracked works anywhere: no registry hosts, no paths of one machine, no addresses in lock files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HOSTS = re.compile(
    r"https?://[\w.-]*(?:regis" + r"try|mir" + r"ror|pack" + r"ages|hos" + r"ted)[\w.-]*/"
    r"|index-" + r"url|(?<![\w.$}])/(?:wo" + r"rk|fa" + r"rm)/"
)
TEXT_BYTES_MAX = 2_000_000


def tracked_files() -> list[str]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout, so what is tracked is not known")
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_tracked_file_names_a_registry_or_a_path_of_one_machine() -> None:
    found = []
    for name in tracked_files():
        data = (ROOT / name).read_bytes()
        if len(data) < TEXT_BYTES_MAX and b"\0" not in data and HOSTS.search(data.decode("utf-8", "replace")):
            found.append(name)
    assert not found


def test_lock_files_hold_hashes_and_no_addresses() -> None:
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        text = lock.read_text("utf-8")
        assert "://" not in text, lock.name
        pins = len(re.findall(r"^[\w.\[\],-]+==", text, re.MULTILINE))
        assert pins > (0 if lock.name == "installer.txt" else 40), lock.name
        blocks = re.findall(
            r"^[\w.\[\],-]+==[^\n]*\\\n(?:    --hash=sha256:[0-9a-f]{64})", text, re.MULTILINE
        )
        assert len(blocks) == pins, f"{lock.name}: a pin without a hash"


def test_what_builds_leave_is_ignored() -> None:
    for name in (".venv/x", ".mypy_cache/x", "build/x", "dist/x", "src/starverse/__pycache__/x.pyc"):
        done = subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT, check=False)
        assert done.returncode in (0, 128), f"{name} would be committed"
