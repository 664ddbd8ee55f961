"""Keys, secrets and images on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.testing import api_examples as examples
from starverse.testing.command_lines import CommandLine
from starverse.testing.fake_api import FakeApi, Reply

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIF1"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as fake:
        fake.on("POST", "/ssh-keys", Reply(201, examples.ssh_key()))
        fake.on("GET", "/ssh-keys", {"items": [examples.ssh_key()], "next_cursor": None})
        yield fake


@pytest.fixture
def line(api: FakeApi, tmp_path: Path) -> CommandLine:
    return CommandLine(api.url, tmp_path)


def keys_in(folder: Path, *names: str) -> Path:
    ssh = folder / ".ssh"
    ssh.mkdir()
    for name in names:
        (ssh / f"{name}.pub").write_text(f"# made today\n\n{KEY}{name} {name}@laptop\n")
    return ssh


def sent(api: FakeApi) -> list[Any]:
    return [seen.json for seen in api.seen if seen.method == "POST"]


def test_the_only_key_of_this_machine_is_taken(api: FakeApi, line: CommandLine, tmp_path: Path) -> None:
    keys_in(tmp_path, "id_ed25519")
    ran = line.run("ssh-key", "add")
    assert (ran.code, ran.out) == (0, examples.ssh_key()["fingerprint"] + "\n")
    assert sent(api) == [{"name": "id_ed25519@laptop", "public_key": f"{KEY}id_ed25519 id_ed25519@laptop"}]


def test_of_several_keys_one_is_chosen(api: FakeApi, line: CommandLine, tmp_path: Path) -> None:
    ssh = keys_in(tmp_path, "a", "b")
    (ssh / "notes.pub").write_text("no key at all")
    (ssh / "a-cert.pub").write_text(f"{KEY} cert")
    ran = line.run("ssh-key", "add", stdin="2\n", terminal=True)
    assert ran.code == 0
    assert "1  a.pub: a@laptop" in ran.err
    assert sent(api)[0]["name"] == "b@laptop"
    for answer in ("3\n", "0\n", "\n", "b\n"):
        assert line.run("ssh-key", "add", stdin=answer, terminal=True).code == 2
    assert line.run("ssh-key", "add").code == 2, "nobody is there to choose"
    assert len(sent(api)) == 1


def test_a_key_comes_from_a_file_from_stdin_or_as_it_is(
    api: FakeApi, line: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "mine.pub").write_text(f"{KEY}\n")
    assert line.run("ssh-key", "add", "mine.pub").code == 0
    assert line.run("ssh-key", "add", "-", "--name", "ci", stdin=f"{KEY} x y\n").code == 0
    assert line.run("ssh-key", "add", f"{KEY} 王 的 笔记本").code == 0
    assert [one["name"] for one in sent(api)] == ["mine", "ci", "王 的 笔记本"]


WRONG = {
    "a private key": "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n",
    "half a key": "ssh-ed25519\n",
    "nothing": "",
    "prose": "please let me in\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
def test_what_is_no_public_key_never_leaves_this_machine(
    api: FakeApi, line: CommandLine, tmp_path: Path, text: str
) -> None:
    (tmp_path / "key").write_text(text)
    ran = line.run("ssh-key", "add", "key")
    assert (ran.code, "no public key" in ran.err) == (2, True)
    assert ("private key, which stays" in ran.err) is ("PRIVATE" in text)
    assert line.run("ssh-key", "add", "missing.pub").code == 2
    assert api.seen == []


def test_without_a_key_one_is_told_how_to_make_one(line: CommandLine) -> None:
    ran = line.run("ssh-key", "add")
    assert (ran.code, "ssh-keygen -t ed25519" in ran.err) == (2, True)


def test_a_key_is_removed_by_name_or_fingerprint(api: FakeApi, line: CommandLine) -> None:
    api.on("DELETE", "/ssh-keys/k-laptop", Reply(204))
    assert line.run("ssh-key", "rm", "laptop").code == 2
    assert line.run("ssh-key", "rm", "laptop", "--yes").code == 0
    assert line.run("ssh-key", "rm", examples.ssh_key()["fingerprint"], "--yes").code == 0
    assert line.run("ssh-key", "rm", "other", "--yes").code == 3
    assert len(api.requests("DELETE", "/ssh-keys/k-laptop")) == 2


def test_a_secret_comes_from_stdin_or_a_file_and_is_printed_nowhere(
    api: FakeApi, line: CommandLine, tmp_path: Path
) -> None:
    api.on("PUT", "/secrets/hf%20%E4%BB%A4%E7%89%8C", {"name": "hf 令牌"})
    (tmp_path / "token").write_bytes(b"two\nlines\r\n")
    first = line.run("secret", "set", "hf 令牌", stdin="s3cret\n")
    second = line.run("secret", "set", "hf 令牌", "--file", "token")
    assert (first.code, second.code) == (0, 0)
    assert [seen.json for seen in api.seen] == [{"value": "s3cret"}, {"value": "two\nlines\r\n"}]
    assert "s3cret" not in first.out + first.err


def test_a_secret_is_no_argument_and_is_not_empty(api: FakeApi, line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for words in (("hf", "s3cret"), ("hf",), ("hf", "--file", "binary"), ("hf", "--file", "/dev/null")):
        assert line.run("secret", "set", *words).code == 2, words
    assert line.run("secret", "set", "hf", "--file", "missing").code == 1
    assert api.seen == []


def test_secrets_are_listed_by_name_and_removed(api: FakeApi, line: CommandLine) -> None:
    listed = {"items": [{"name": "hf", "created_at": None, "changed_at": None}], "next_cursor": None}
    api.on("GET", "/secrets", listed)
    api.on("DELETE", "/secrets/hf", Reply(204))
    assert line.run("secret", "ls").out.splitlines()[1].split() == ["hf", "-", "-"]
    assert line.run("secret", "rm", "hf").code == 2
    assert line.run("secret", "rm", "hf", "--yes").code == 0


RECIPES: dict[str, tuple[tuple[str, ...], dict[str, Any] | None]] = {
    "a shipped one": ((), None),
    "pinned packages": (
        ("numpy==2.4.0", "--python", "3.12"),
        {"kind": "venv", "packages": ["numpy==2.4.0"], "python": "3.12"},
    ),
    "a requirements file": (
        ("--requirements", "req.txt", "--cuda", "12.6", "--driver-min", "560.28"),
        {"kind": "venv", "requirements": "numpy==2.4.0\n", "cuda": "12.6", "driver_min": "560.28"},
    ),
    "conda": (
        ("--kind", "conda", "--channel", "conda-forge", "numpy"),
        {"kind": "conda", "packages": ["numpy"], "channels": ["conda-forge"]},
    ),
    "a container image": (
        ("--kind", "oci", "--ref", "docker.io/library/debian:12"),
        {"kind": "oci", "ref": "docker.io/library/debian:12"},
    ),
}


@pytest.mark.parametrize(("words", "recipe"), RECIPES.values(), ids=RECIPES.keys())
def test_an_image_is_ordered_and_waited_for(
    api: FakeApi, line: CommandLine, tmp_path: Path, words: tuple[str, ...], recipe: object
) -> None:
    (tmp_path / "req.txt").write_text("numpy==2.4.0\n")
    api.on("POST", "/images", Reply(201, examples.image("mine", state="queued", digest=None)))
    api.on("GET", "/images/i-mine", examples.image("mine", state="building"), examples.image("mine"))
    ran = line.run("image", "build", "mine", *words)
    assert (ran.code, ran.out) == (0, examples.image()["digest"] + "\n")
    assert ran.err.splitlines() == ["mine: queued", "mine: building", "mine is ready"]
    assert sent(api) == [{"name": "mine", "recipe": recipe}]


def test_an_image_that_cannot_be_built_says_why(api: FakeApi, line: CommandLine) -> None:
    failed = examples.image("mine", state="failed", message="no wheel of numpy==9", digest=None)
    api.on("POST", "/images", Reply(201, failed))
    ran = line.run("image", "build", "mine", "numpy==9")
    assert (ran.code, ran.err) == (1, "mine failed: no wheel of numpy==9\n")
    for words in (("--kind", "oci"), ("--ref", "debian:12")):
        assert line.run("image", "build", "mine", *words).code == 2, words


def test_an_instance_is_saved_as_an_image(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/instances/lab:save-image", Reply(201, examples.image("env", state="queued")))
    api.on("GET", "/images/i-env", examples.image("env", kind="saved"))
    assert line.run("image", "save", "lab", "env").code == 0
    assert line.run("image", "save", "lab", "env", "--no-wait").err == "env is queued\n"
    assert sent(api) == [{"name": "env"}, {"name": "env"}]


def test_a_damaged_image_is_a_failure(api: FakeApi, line: CommandLine) -> None:
    fault = {"path": "lib/numpy/__init__.py", "kind": "changed"}
    damaged = {**examples.image(), "state": "damaged", "faults": [fault]}
    api.on("POST", "/images/pytorch:verify", {**examples.image(), "state": "verified", "faults": []}, damaged)
    assert line.run("image", "verify", "pytorch").code == 0
    ran = line.run("image", "verify", "pytorch")
    assert (ran.code, "lib/numpy/__init__.py: changed" in ran.out) == (1, True)


def test_an_image_is_removed_after_a_yes(api: FakeApi, line: CommandLine) -> None:
    api.on("DELETE", "/images/mine", Reply(204))
    assert line.run("image", "rm", "mine").code == 2
    assert line.run("image", "rm", "mine", "--yes").code == 0
