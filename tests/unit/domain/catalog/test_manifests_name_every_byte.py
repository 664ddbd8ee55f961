"""Manifests: the same content gives the same text, every fault is named, every difference found."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from starverse.domain.catalog.manifest import (
    Difference,
    Manifest,
    ManifestFile,
    compare,
    make_manifest,
    read_manifest,
)
from starverse.domain.errors import Invalid

HASH = "0123456789abcdef" * 4
ENTRY = {"path": "a", "bytes": 1, "hash": HASH}
A = ManifestFile("a.txt", 3, HASH)
B = ManifestFile("data/b.bin", 0, HASH)


def test_the_order_given_does_not_matter_and_text_reads_back() -> None:
    one, two = make_manifest("sha256", [A, B]), make_manifest("sha256", [B, A])
    assert one == two
    assert one.digest == two.digest
    assert one.bytes == 3
    assert read_manifest(one.to_text()) == one


def test_any_change_changes_the_digest() -> None:
    base = make_manifest("sha256", [A, B])
    changed = [
        make_manifest("blake3", [A, B]),
        make_manifest("sha256", [A]),
        make_manifest("sha256", [replace(A, bytes=4), B]),
        make_manifest("sha256", [replace(A, hash="f" * 64), B]),
        make_manifest("sha256", [replace(A, path="a.TXT"), B]),
    ]
    assert len({base.digest, *(manifest.digest for manifest in changed)}) == 6


@pytest.mark.parametrize(
    "path",
    ["", "/abs", "../up", "a/../b", "a//b", "./a", "a/.", "a\nb", "a\0b", "x" * 1025, "half \ud800"],
)
def test_a_path_that_is_not_the_same_everywhere_is_refused(path: str) -> None:
    with pytest.raises(Invalid):
        make_manifest("sha256", [replace(A, path=path)])


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([A, A], "each path once"),
        ([replace(A, path="e\u0301"), replace(A, path="\u00e9")], "each path once"),
        ([replace(A, path="d"), replace(A, path="d/e")], "a file or a folder, not both"),
        ([replace(A, bytes=-1)], "a size, at least 0"),
        ([replace(A, hash="abc")], "64 lower-case hex digits"),
        ([], "at least one file"),
    ],
)
def test_each_fault_says_what_would_be_right(files: list[ManifestFile], expected: str) -> None:
    with pytest.raises(Invalid) as refused:
        make_manifest("sha256", files)
    assert expected in [fault.expected for fault in refused.value.faults]


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(Invalid) as refused:
        make_manifest("md5", [replace(A, path="/x"), replace(B, hash="no")])
    assert len(refused.value.faults) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({"format": 2, "algorithm": "sha256", "files": []}),
        json.dumps({"format": 1, "algorithm": "sha256", "files": {}}),
        json.dumps({"format": 1, "algorithm": "sha256", "files": [{"path": "a"}]}),
        json.dumps(
            {"format": 1, "algorithm": "sha256", "files": [{"path": "a", "bytes": 1.5, "hash": HASH}]}
        ),
        json.dumps({"format": 1, "algorithm": [], "files": [{"path": "a", "bytes": 1, "hash": HASH}]}),
    ],
)
def test_text_that_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        read_manifest(text)


def test_each_kind_of_difference_is_found() -> None:
    other = "f" * 64
    wanted = make_manifest(
        "sha256", [ManifestFile(name, 1, HASH) for name in ("gone", "size", "hash", "same")]
    )
    found = Manifest(
        "sha256",
        (
            ManifestFile("hash", 1, other),
            ManifestFile("more", 1, HASH),
            ManifestFile("same", 1, HASH),
            ManifestFile("size", 2, HASH),
        ),
    )
    kinds = {difference.path: difference.kind for difference in compare(wanted, found)}
    assert kinds == {"gone": "missing", "size": "size", "hash": "hash", "more": "extra"}
    assert compare(wanted, wanted) == ()
    assert compare(wanted, Manifest("sha256", ()))[0] == Difference(
        "gone", "missing", "the file is not there"
    )
    with pytest.raises(ValueError, match="cannot be compared"):
        compare(wanted, Manifest("blake3", ()))
