"""Host keys that are made without ssh-keygen are what ssh-keygen reads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from starverse.node.host_keys import write_host_key


def test_openssh_reads_the_key_and_finds_the_public_part(tmp_path: Path) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed: apt-get install openssh-client")
    path = tmp_path / "host_key"
    write_host_key(path, None)
    assert path.stat().st_mode & 0o777 == 0o600
    derived = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(path)], capture_output=True, check=True, text=True
    )
    assert derived.stdout.split()[:2] == path.with_suffix(".pub").read_text().split()[:2]
    assert derived.stdout.startswith("ssh-ed25519 ")


def test_each_key_is_another_one_and_none_is_written_over(tmp_path: Path) -> None:
    write_host_key(tmp_path / "a", None)
    write_host_key(tmp_path / "b", None)
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()
    with pytest.raises(FileExistsError):
        write_host_key(tmp_path / "a", None)
