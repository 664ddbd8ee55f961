"""What may be done with a disk: names, sizes, paths, who may attach it, which snapshots stay."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from starverse.domain.catalog.disks import (
    DISK_TRANSITIONS,
    GIB,
    SNAPSHOT_TRANSITIONS,
    AttachFacts,
    DiskState,
    ScheduledSnapshot,
    SnapshotState,
    attach_refusal,
    mount_target,
    name_fault,
    over_quota,
    resize_fault,
    size_fault,
    snapshots_to_remove,
)
from starverse.domain.disk_kind import DiskKind
from starverse.domain.workloads.plugging import state_after
from starverse.domain.workloads.states import ATTACHMENT_TRANSITIONS, AttachmentState, path

SHARED, BLOCK = DiskKind.SHARED, DiskKind.BLOCK


GOOD = ("home", "two words", "数据", "数" * 64, "a.b", "x-1", "é", "~", "🚀", "C#", "a,b")


@pytest.mark.parametrize("name", GOOD)
def test_a_name_of_any_script_is_good(name: str) -> None:
    assert name_fault(name) is None
    assert mount_target(name, None) == f"/data/{name}"


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", ".hidden", "-rf", "a/b", "/", "a:b", " a", "a ", "a\tb", "a\nb", "a\0b", "a" * 65),
        *("🚀" * 64, "\u202ename", "a\u2028b", "\ud800", "0197f3a0-0000-7000-8000-000000000000"),
    ],
)
def test_a_name_that_is_no_folder_or_deceives_is_refused(name: str) -> None:
    fault = name_fault(name)
    assert fault is not None
    assert fault.value.encode().decode() == fault.value, "it can be shown"


@pytest.mark.parametrize("gib", [0, -1, 65_537])
def test_a_size_has_bounds(gib: int) -> None:
    assert size_fault(gib) is not None
    assert size_fault(1) is size_fault(65_536) is None


@pytest.mark.parametrize(
    ("kind", "old", "new", "used", "why"),
    [
        (SHARED, 10, 20, None, None),
        (BLOCK, 10, 20, None, None),
        (BLOCK, 10, 9, 0, "only grows"),
        (SHARED, 10, 9, None, "not measured yet"),
        (SHARED, 10, 9, 9 * GIB, None),
        (SHARED, 10, 9, 9 * GIB + 1, "it holds 10 GiB"),
    ],
)
def test_what_a_disk_may_become(
    kind: DiskKind, old: int, new: int, used: int | None, why: str | None
) -> None:
    said = resize_fault(kind, old, new, used)
    assert (said is None) if why is None else (said is not None and why in said)


FREE = AttachFacts(BLOCK, DiskState.READY)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (FREE, None),
        (replace(FREE, same_team=False), "another team"),
        *((replace(FREE, state=state), state.value) for state in DiskState if state is not DiskState.READY),
        (replace(FREE, reachable=False), "ending"),
        (replace(FREE, has_it=True), "already"),
        (replace(FREE, target_taken=True), "another disk"),
        (replace(FREE, nodes=2), "2 nodes"),
        (replace(FREE, taken_by="instance a"), "instance a has it"),
        (replace(FREE, syncing=True), "a sync of it runs"),
        (replace(FREE, growing=True), "grown"),
        (replace(FREE, snapshot_making=True), "snapshot"),
        (
            replace(
                FREE, kind=SHARED, nodes=2, taken_by="a", growing=True, syncing=True, snapshot_making=True
            ),
            None,
        ),
        (replace(FREE, kind=SHARED, has_it=True), "already"),
    ],
)
def test_who_may_attach_it(facts: AttachFacts, why: str | None) -> None:
    said = attach_refusal(facts)
    assert (said is None) if why is None else (said is not None and why in said)


def test_only_a_shared_disk_can_be_over_its_size() -> None:
    assert over_quota(SHARED, 1, GIB + 1)
    assert not over_quota(SHARED, 1, GIB)
    assert not over_quota(SHARED, 1, None)
    assert not over_quota(BLOCK, 1, 2 * GIB)


def test_the_newest_scheduled_snapshots_stay() -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    made = [ScheduledSnapshot(f"s{day}", now + timedelta(days=day)) for day in (3, 1, 2, 0)]
    assert snapshots_to_remove(made, 2) == ("s0", "s1")
    assert snapshots_to_remove(made, 4) == ()


def test_states_end_where_they_have_to() -> None:
    assert {state for state, after in DISK_TRANSITIONS.items() if not after} == {DiskState.PURGED}
    assert {state for state, after in SNAPSHOT_TRANSITIONS.items() if not after} == {SnapshotState.REMOVED}
    assert DISK_TRANSITIONS.keys() == set(DiskState)
    assert SNAPSHOT_TRANSITIONS.keys() == set(SnapshotState)


WORDS = ("attached", "refused", "detached", "stuck", "", "nonsense")


@pytest.mark.parametrize("state", list(AttachmentState))
@pytest.mark.parametrize("word", WORDS)
def test_what_a_launcher_reports_moves_an_attachment_only_along_its_table(
    state: AttachmentState, word: str
) -> None:
    after = state_after(state, word)
    if after is not None:
        assert path(ATTACHMENT_TRANSITIONS, state, after) == (after,)
    if state in (AttachmentState.REFUSED, AttachmentState.DETACHED, AttachmentState.ATTACHED):
        assert after is None
