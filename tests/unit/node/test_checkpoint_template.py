"""Copies of a folder as checkpoints, for scripts that do not know of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from starverse.checkpoint import DiskFull, Fenced, Unusable, published, verify
from starverse.checkpoint.publish import Origin
from starverse.checkpoint.tree import SourceChanged, scan
from starverse.node.checkpoint_template import (
    CopyOutcome,
    Rehash,
    Template,
    copy_as_it_was,
    publish_copy,
    restore_copy,
)


@pytest.fixture
def template(tmp_path: Path) -> Template:
    (tmp_path / "workspace/state/deep").mkdir(parents=True)
    return Template(tmp_path / "workspace", "state", tmp_path / "checkpoints")


def state(template: Template) -> Path:
    return template.workspace / template.folder


def content(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if not path.is_dir() or path.is_symlink()
    }


def test_a_copy_is_published_and_restored_as_it_was(template: Template) -> None:
    (state(template) / "count").write_text("41")
    (state(template) / "deep/model.bin").write_bytes(os.urandom(100_000))
    (state(template) / "manifest.json").write_text("the script's own")
    (state(template) / "latest").symlink_to("deep/model.bin")
    (state(template) / "empty").mkdir()
    (state(template) / "run.sh").write_text("#!/bin/sh\n")
    (state(template) / "run.sh").chmod(0o750)
    before = content(state(template))
    result = publish_copy(template)
    assert result.outcome is CopyOutcome.PUBLISHED
    assert result.checkpoint is not None
    assert verify(result.checkpoint.path).verified
    (state(template) / "count").write_text("torn by a ki")
    (state(template) / "newer").write_text("gone after the restore")
    assert restore_copy(template) == result.checkpoint
    assert content(state(template)) == before
    assert (state(template) / "empty").is_dir()
    assert (state(template) / "run.sh").stat().st_mode & 0o777 == 0o750
    assert sorted(path.name for path in template.workspace.iterdir()) == ["state"]


def test_copies_count_up_and_an_unchanged_folder_makes_none(template: Template) -> None:
    (state(template) / "count").write_text("1")
    first = publish_copy(template)
    again = publish_copy(template, Rehash.NEVER)
    assert (again.outcome, again.checkpoint) == (CopyOutcome.UNCHANGED, first.checkpoint)
    (state(template) / "count").write_text("2")
    assert publish_copy(template).outcome is CopyOutcome.PUBLISHED
    assert [item.step for item in published(template.root)] == [1, 2]
    assert not list(template.root.glob(".writing-*"))


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()], ids=["missing", "empty"])
def test_nothing_to_copy_is_no_checkpoint(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "state")
    result = publish_copy(Template(tmp_path, "state", tmp_path / "root"))
    assert result.outcome is CopyOutcome.EMPTY
    assert not (tmp_path / "root").exists()


def appended(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


def replaced(path: Path) -> None:
    text = path.read_text()
    path.with_name("new").write_text(text)
    path.with_name("new").rename(path)


def same_size_and_time(path: Path) -> None:
    before = path.stat()
    path.write_bytes(b"y" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def added(path: Path) -> None:
    path.with_name("another").write_text("x")


def removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [appended, replaced, same_size_and_time, added, removed])
def test_a_copy_is_void_when_anything_changes_meanwhile(template: Template, change: object) -> None:
    """The change is made by the file system itself: a second scan finds another tree than the first."""
    assert callable(change)
    (state(template) / "count").write_bytes(b"x" * 1000)
    before = scan(template.workspace, template.folder)
    change(state(template) / "count")
    (template.root / "writing").mkdir(parents=True)
    with pytest.raises(SourceChanged):
        copy_as_it_was(template, before, template.root / "writing", Rehash.RECENT)


def test_a_script_that_never_stops_writing_gets_a_whole_copy_or_none(template: Template) -> None:
    """Each file holds one number throughout; a copy that mixes two would be torn."""
    names = [f"part{index}" for index in range(20)]
    script = 'n=0; while :; do n=$((n+1)); for f in "$@"; do echo "$n$n$n$n" > "$f"; done; done'
    for name in names:
        (state(template) / name).write_text("0000\n")
    outcomes = []
    with subprocess.Popen(["/bin/bash", "-c", script, "-", *names], cwd=state(template)) as writer:
        try:
            for _ in range(15):
                outcomes.append(publish_copy(template).outcome)
        finally:
            writer.kill()
    assert CopyOutcome.VOIDED in outcomes
    for item in published(template.root):
        assert verify(item.path).verified
        numbers = [(item.path / "folder" / name).read_text() for name in names]
        assert len(set(numbers)) <= 2, "within one round of the writer: two neighbours at most"
    assert publish_copy(template, Rehash.NEVER).outcome in (CopyOutcome.PUBLISHED, CopyOutcome.UNCHANGED)


def test_links_that_lead_out_and_pipes_are_skipped_and_named(template: Template, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("another team's")
    (state(template) / "count").write_text("1")
    (state(template) / "stolen").symlink_to("../../secret")
    os.mkfifo(state(template) / "pipe")
    result = publish_copy(template)
    assert result.outcome is CopyOutcome.PUBLISHED
    assert result.skipped == ("pipe", "stolen")
    assert result.checkpoint is not None
    assert content(result.checkpoint.path / "folder") == {"count": b"1"}


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("x")
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace/state").symlink_to("../secrets")
    result = publish_copy(Template(tmp_path / "workspace", "state", tmp_path / "root"))
    assert result.outcome is CopyOutcome.VOIDED
    assert published(tmp_path / "root") == []


@pytest.mark.parametrize("folder", ["", ".", "..", "/etc", "a/../..", "a//b"])
def test_a_folder_outside_of_the_workspace_is_refused(tmp_path: Path, folder: str) -> None:
    with pytest.raises(Unusable, match="inside the workspace"):
        Template(tmp_path, folder, tmp_path / "root")


def test_a_restore_never_writes_through_a_link_of_the_script(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    (workspace / "a/state").mkdir(parents=True)
    (workspace / "a/state/count").write_text("1")
    template = Template(workspace, "a/state", tmp_path / "root")
    publish_copy(template)
    (workspace / "a").rename(tmp_path / "elsewhere")
    (workspace / "a").symlink_to("../elsewhere")
    with pytest.raises(Unusable, match="plain folder"):
        restore_copy(template)
    assert (tmp_path / "elsewhere/state/count").read_text() == "1"


def test_a_damaged_copy_falls_back_to_the_one_before(template: Template) -> None:
    for count in ("1", "2"):
        (state(template) / "count").write_text(count)
        publish_copy(template)
    newest = published(template.root)[-1]
    (newest.path / "folder/count").write_text("9")
    restored = restore_copy(template)
    assert restored is not None
    assert restored.step == 1
    assert (state(template) / "count").read_text() == "1"


def test_without_a_usable_copy_the_folder_stays_as_it_is(template: Template) -> None:
    (state(template) / "count").write_text("from the submit folder")
    assert restore_copy(template) is None
    publish_copy(template)
    (published(template.root)[0].path / "folder/count").write_text("?")
    assert restore_copy(template) is None
    assert content(template.workspace) == {"state/count": b"from the submit folder"}


def test_a_restore_that_was_killed_half_way_is_done_again(template: Template) -> None:
    (state(template) / "count").write_text("1")
    publish_copy(template)
    state(template).rename(template.workspace / ".state.replaced")
    (template.workspace / ".state.restored").mkdir()
    assert restore_copy(template) is not None
    assert sorted(path.name for path in template.workspace.iterdir()) == ["state"]


def test_an_older_attempt_cannot_publish_a_copy(template: Template) -> None:
    (state(template) / "count").write_text("1")
    publish_copy(Template(template.workspace, "state", template.root, Origin(attempt=2)))
    (state(template) / "count").write_text("2")
    with pytest.raises(Fenced):
        publish_copy(Template(template.workspace, "state", template.root, Origin(attempt=1)))


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_is_named_and_nothing_is_left(template: Template) -> None:
    template.root.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", template.root], check=False
    ).returncode:
        pytest.skip("this machine lets root mount no tmpfs")
    try:
        (state(template) / "large").write_bytes(bytes(2_000_000))
        with pytest.raises(DiskFull):
            publish_copy(template)
        assert [path.name for path in template.root.iterdir()] == [".lock"]
    finally:
        subprocess.run(["umount", template.root], check=True)
