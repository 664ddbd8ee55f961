"""A damaged checkpoint is never taken for a verified one, whatever the damage."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.checkpoint import Checkpointer, Fault, published, verify
from starverse.checkpoint.manifest import FileEntry, LinkEntry, Manifest, is_safe_target, read_manifest

WEIGHTS = bytes(range(256)) * 64


def new_checkpointer(root: Path, attempt: int = 0) -> Checkpointer:
    environment = {"STARVERSE_RETRY": str(attempt)}
    return Checkpointer(root, environment=environment, handle_signal=False)


def publish(root: Path, step: int, attempt: int = 0) -> Path:
    return new_checkpointer(root, attempt).save_bytes(step, {"model/weights.bin": WEIGHTS, "empty": b""})


def flip_a_byte(folder: Path) -> None:
    content = bytearray((folder / "model/weights.bin").read_bytes())
    content[5000] ^= 1
    (folder / "model/weights.bin").write_bytes(content)


def cut_a_file(folder: Path) -> None:
    os.truncate(folder / "model/weights.bin", 100)


def lengthen_a_file(folder: Path) -> None:
    with (folder / "model/weights.bin").open("ab") as file:
        file.write(b"x")


def remove_a_file(folder: Path) -> None:
    (folder / "empty").unlink()


def put_a_link_in_a_files_place(folder: Path) -> None:
    shutil.copy(folder / "model/weights.bin", folder.parent / "same")
    (folder / "model/weights.bin").unlink()
    (folder / "model/weights.bin").symlink_to(folder.parent / "same")


def put_a_link_in_a_folders_place(folder: Path) -> None:
    (folder / "model").rename(folder.parent / "model")
    (folder / "model").symlink_to(folder.parent / "model")


def put_a_pipe_in_a_files_place(folder: Path) -> None:
    (folder / "empty").unlink()
    os.mkfifo(folder / "empty")


def cut_the_manifest(folder: Path) -> None:
    os.truncate(folder / "manifest.json", (folder / "manifest.json").stat().st_size // 2)


def empty_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b"")


def flip_a_byte_of_the_manifest(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"run": null', '"run": "me"'))


def remove_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def put_a_link_in_the_manifests_place(folder: Path) -> None:
    (folder / "manifest.json").rename(folder.parent / "manifest.json")
    (folder / "manifest.json").symlink_to(folder.parent / "manifest.json")


def nest_the_manifest_without_end(folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b"[" * 100_000)


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (flip_a_byte, Fault.WRONG_HASH),
        (cut_a_file, Fault.WRONG_SIZE),
        (lengthen_a_file, Fault.WRONG_SIZE),
        (remove_a_file, Fault.MISSING_FILE),
        (put_a_link_in_a_files_place, Fault.WRONG_KIND),
        (put_a_link_in_a_folders_place, Fault.WRONG_KIND),
        (put_a_pipe_in_a_files_place, Fault.WRONG_KIND),
        (cut_the_manifest, Fault.INVALID_MANIFEST),
        (empty_the_manifest, Fault.INVALID_MANIFEST),
        (flip_a_byte_of_the_manifest, Fault.INVALID_MANIFEST),
        (nest_the_manifest_without_end, Fault.INVALID_MANIFEST),
        (remove_the_manifest, Fault.NO_MANIFEST),
        (put_a_link_in_the_manifests_place, Fault.UNREADABLE),
    ],
)
def test_a_damaged_checkpoint_is_unverified_and_the_one_before_is_resumed(
    tmp_path: Path, damage: Callable[[Path], None], fault: Fault
) -> None:
    older = publish(tmp_path, 1)
    newest = publish(tmp_path, 2)
    assert verify(newest).verified
    damage(newest)
    found = verify(newest)
    assert (found.verified, found.fault) == (False, fault)
    assert found.reason
    resumed = new_checkpointer(tmp_path)
    latest = resumed.latest()
    assert latest is not None
    assert latest.path == older
    assert resumed.resume_path() == older


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(("../outside",), id="parent"),
        pytest.param(("/etc/hostname",), id="absolute"),
        pytest.param(("a/../../outside",), id="parent in the middle"),
        pytest.param(("./a",), id="dot"),
        pytest.param(("a//b",), id="empty part"),
        pytest.param(("a\0b",), id="nul"),
        pytest.param(("manifest.json",), id="the manifest itself"),
        pytest.param(("a", "a"), id="twice"),
    ],
)
def test_a_manifest_that_names_a_path_outside_is_invalid(tmp_path: Path, files: tuple[str, ...]) -> None:
    (tmp_path / "outside").write_bytes(b"")
    entries = tuple(FileEntry(path, 0, "0" * 64) for path in files)
    assert fault_of(tmp_path, Manifest(0, 1, "now", entries)) is Fault.INVALID_MANIFEST


@pytest.mark.parametrize(
    ("path", "target", "is_safe"),
    [
        ("latest", "step/model", True),
        ("a/latest", "../model", True),
        ("latest", "../model", False),
        ("a/latest", "../../model", False),
        ("latest", "/etc/passwd", False),
        ("a/b/latest", "x/../../model", False),
        ("latest", "", False),
        ("latest", "a//b", False),
    ],
)
def test_a_link_may_point_inside_only(tmp_path: Path, path: str, target: str, is_safe: bool) -> None:
    assert is_safe_target(path, target) is is_safe
    fault = fault_of(tmp_path, Manifest(0, 1, "now", (), links=(LinkEntry(path, target),)))
    assert fault is (Fault.WRONG_LINK if is_safe else Fault.INVALID_MANIFEST)


def fault_of(root: Path, manifest: Manifest) -> Fault | None:
    folder = root / manifest.folder_name
    folder.mkdir()
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return verify(folder).fault


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 2),
        ("format", "other"),
        ("algorithm", "md5"),
        ("block_bytes", 0),
        ("block_bytes", 1),
        ("files", [{"path": "a", "size": 10**30, "hash": "0" * 64}]),
        ("step", -1),
        ("step", True),
        ("attempt", "0"),
        ("files", None),
        ("files", [{"path": "a", "size": 1, "hash": "zz"}]),
        ("files", ["a"]),
    ],
)
def test_a_manifest_with_an_impossible_field_is_invalid(tmp_path: Path, field: str, value: object) -> None:
    class Forged(Manifest):
        def _body(self) -> dict[str, object]:
            return {**super()._body(), field: value}

    forged = Forged(0, 1, "now", ())
    assert fault_of(tmp_path, forged) is Fault.INVALID_MANIFEST


def test_a_checkpoint_under_another_name_does_not_count(tmp_path: Path) -> None:
    folder = publish(tmp_path, 7)
    renamed = folder.rename(tmp_path / "step-0000000009-a5")
    assert verify(renamed).fault is Fault.WRONG_NAME


def test_published_lists_by_attempt_then_step_and_ignores_everything_else(tmp_path: Path) -> None:
    for step, attempt in [(5, 0), (10, 0), (7, 1), (9, 1)]:
        publish(tmp_path, step, attempt)
    (tmp_path / "step-3-a0").mkdir()
    (tmp_path / "step-0000000003-a01").mkdir()
    (tmp_path / ".writing-0-99-1").mkdir()
    (tmp_path / "step-0000000099-a9").symlink_to(tmp_path / "step-0000000010-a0")
    assert [(item.attempt, item.step) for item in published(tmp_path)] == [(0, 10), (1, 7), (1, 9)]
    assert published(tmp_path / "missing") == []


def test_sha256_checkpoints_verify_where_blake3_is_importable_too(tmp_path: Path) -> None:
    folder = publish(tmp_path, 1)
    manifest = read_manifest(folder)
    import hashlib

    plain = {"model/weights.bin": hashlib.sha256(WEIGHTS), "empty": hashlib.sha256()}
    files = tuple(replace(entry, hash=plain[entry.path].hexdigest()) for entry in manifest.files)
    (folder / "manifest.json").write_bytes(replace(manifest, files=files, algorithm="sha256").to_bytes())
    assert verify(folder).verified
    assert json.loads((folder / "manifest.json").read_text())["algorithm"] == "sha256"
    flip_a_byte(folder)
    assert verify(folder).fault is Fault.WRONG_HASH


def test_a_file_larger_than_a_block_is_verified_block_by_block(tmp_path: Path) -> None:
    content = os.urandom(40 * 1024 * 1024 + 3)
    folder = new_checkpointer(tmp_path).save_bytes(1, {"large": content})
    assert verify(folder).verified
    with (folder / "large").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(bytes([content[-1] ^ 255]))
    assert verify(folder).fault is Fault.WRONG_HASH


def test_a_reader_may_bound_what_it_reads(tmp_path: Path) -> None:
    folder = publish(tmp_path, 1)
    assert verify(folder, bytes_max=len(WEIGHTS)).verified
    assert verify(folder, bytes_max=len(WEIGHTS) - 1).fault is Fault.TOO_LARGE
