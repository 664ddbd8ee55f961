"""What is added to an image's accounts so that people can sign in, and what is told of hosts that cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from starverse.node.images.probes import without_root_inside
from starverse.node.sandbox.oci_inside import add_accounts
from starverse.node.sandbox.oci_root import sshd_parts

ROOT = "root:x:0:0:root:/root:/bin/sh\n"


@pytest.mark.parametrize(
    ("before", "added"),
    [
        ("", ["root", "user", "sshd"]),
        (ROOT, ["user", "sshd"]),
        (f"{ROOT}sshd:x:74:74::/:/sbin/nologin\n", ["user"]),
        (ROOT.strip(), ["user", "sshd"]),
    ],
)
def test_what_is_missing_is_added_once(tmp_path: Path, before: str, added: list[str]) -> None:
    passwd = tmp_path / "passwd"
    passwd.write_text(before)
    add_accounts(str(passwd))
    lines, kept = passwd.read_text().splitlines(), before.splitlines()
    assert lines[: len(kept)] == kept, "what was there stays"
    assert [line.split(":")[0] for line in lines[len(kept) :]] == added
    assert any(line.startswith("user:x:0:0:") for line in lines), "the name that is signed in by is root's"
    add_accounts(str(passwd))
    assert passwd.read_text().splitlines() == lines


def test_the_user_of_sshd_is_nobody_who_is_there(tmp_path: Path) -> None:
    passwd = tmp_path / "passwd"
    passwd.write_text("a:x:105:1::/:/bin/sh\nb:x:74:1::/:/bin/sh\n")
    add_accounts(str(passwd))
    assert "sshd:x:22:22:" in passwd.read_text()


def test_the_programs_of_a_newer_sshd_are_started_by_the_hosts_loader(tmp_path: Path) -> None:
    """OpenSSH 9.8 has two, 10.0 three; each is named by an option of its own."""
    assert sshd_parts([str(tmp_path)]) == {}
    (tmp_path / "sshd-session").touch()
    ((option, (name, script)),) = sshd_parts(["/nowhere", str(tmp_path)]).items()
    assert (option, name) == ("SshdSessionPath", "sshd-session")
    loader, way, libraries, program, rest = script.splitlines()[1].removeprefix("exec ").split()
    assert loader.startswith("/.starverse/")
    assert (way, program, rest) == ("--library-path", f"/.starverse{tmp_path}/sshd-session", '"$@"')
    assert all(path.startswith("/.starverse/") for path in libraries.split(":"))


def test_a_kernel_without_what_is_needed_is_told() -> None:
    old = without_root_inside("4.18.0-553.el8", "nodev\toverlay\n")
    assert old.startswith("Linux 4.18.0-553.el8 does not run them: Linux 5.")
    assert without_root_inside("6.1.0-18-amd64", "nodev\ttmpfs\n").endswith(": modprobe overlay")
