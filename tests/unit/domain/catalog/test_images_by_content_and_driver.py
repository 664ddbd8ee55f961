"""Images: names, states, what counts in a digest, and which drivers can run one."""

from __future__ import annotations

from itertools import product

import pytest

from starverse.domain.catalog.image_trees import Entry, EntryKind, compare_trees, tree_digest
from starverse.domain.catalog.images import (
    TRANSITIONS,
    ImageState,
    advance,
    cuda_of_contents,
    driver_of_cuda,
    name_fault,
)
from starverse.domain.cluster import is_older_driver
from starverse.domain.errors import Conflict


@pytest.mark.parametrize(
    ("driver", "wanted", "older"),
    [
        ("550.54.14", "525.60.13", False),
        ("525.60.13", "525.60.13", False),
        ("525.60", "525.60.13", True),
        ("470.57.02", "525.60.13", True),
        ("550.9", "550.54.14", True),
        ("1000.1", "550.54.14", False),
        ("", "525.60.13", False),
        ("470.57.02", "", False),
        ("unknown", "525.60.13", False),
    ],
)
def test_drivers_are_compared_by_their_numbers(driver: str, wanted: str, older: bool) -> None:
    assert is_older_driver(driver, wanted) is older


def test_what_packages_tell_of_cuda() -> None:
    assert cuda_of_contents(("numpy==2.3.5", "nvidia-cuda-runtime-cu12==12.6.77", "torch==2.9.0")) == "12.6"
    assert cuda_of_contents(("nvidia-cuda-runtime==13.0.96",)) == "13.0"
    assert cuda_of_contents(("torch==2.5.1+cu118",)) == "11.8"
    assert cuda_of_contents(("torch==2.13.0+cpu", "numpy==2.3.5")) == ""
    assert [driver_of_cuda(cuda) for cuda in ("11.8", "12.6", "13.0", "99.0", "")] == [
        "450.80.02", "525.60.13", "580.65.06", "", "",
    ]  # fmt: skip


def test_all_pairs_of_states() -> None:
    for old, new in product(ImageState, ImageState):
        if new in TRANSITIONS[old]:
            assert advance(old, new) is new
        else:
            with pytest.raises(Conflict):
                advance(old, new)


@pytest.mark.parametrize("name", ["pytorch", "a", "x" * 63, "torch-2.9_cu12"])
def test_names_that_are_right(name: str) -> None:
    assert name_fault(name) is None


@pytest.mark.parametrize(
    "name",
    ["", "x" * 64, "x" * 255, "..", "a..b", "../a", "a/b", "A", "图像", "a b", ".a", "a-", "a\n", "sha256:0"],
)
def test_names_that_are_refused(name: str) -> None:
    assert name_fault(name) is not None


def entry(path: str, kind: EntryKind = EntryKind.FILE, hash_: str = "0") -> Entry:
    return Entry(path, kind, 1, hash_)


SITE = "lib/python3.11/site-packages"
TREE = (entry(f"{SITE}/six.py"), entry("bin/python", EntryKind.LINK), entry("bin/tool", EntryKind.PROGRAM))


def test_order_and_what_the_installer_noted_change_no_digest() -> None:
    noise = [
        entry(f"{SITE}/__pycache__/six.cpython-311.pyc"),
        *(entry(f"{SITE}/six-1.17.0.dist-info/{name}") for name in ("RECORD", "INSTALLER", "REQUESTED")),
    ]
    assert tree_digest(TREE) == tree_digest([*reversed(TREE), *noise])


@pytest.mark.parametrize(
    "changed",
    [
        (*TREE, entry("RECORD")),
        (entry(f"{SITE}/six.py", hash_="1"), *TREE[1:]),
        (entry(f"{SITE}/six.py", EntryKind.PROGRAM), *TREE[1:]),
        (TREE[0], entry("bin/python", EntryKind.LINK, "1"), TREE[2]),
        TREE[1:],
    ],
    ids=["a file more", "other bytes", "may be executed", "leads elsewhere", "a file less"],
)
def test_what_changes_a_digest(changed: tuple[Entry, ...]) -> None:
    assert tree_digest(TREE) != tree_digest(changed)


def test_paths_cannot_run_into_each_other() -> None:
    assert tree_digest([entry("a\nb")]) != tree_digest([entry("a"), entry("b")])


def test_every_difference_is_named() -> None:
    found = (entry(f"{SITE}/six.py", hash_="1"), TREE[1], entry("bin/new"))
    assert [(fault.path, fault.kind) for fault in compare_trees(TREE, found)] == [
        ("bin/new", "extra"),
        ("bin/tool", "missing"),
        (f"{SITE}/six.py", "changed"),
    ]
    assert compare_trees(TREE, TREE) == ()
