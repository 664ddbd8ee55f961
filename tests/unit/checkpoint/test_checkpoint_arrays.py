"""Arrays come back as they were, from memory that was copied at once and published behind the scenes."""

from __future__ import annotations

import array
import threading
from pathlib import Path

import numpy as np
import pytest

from starverse.checkpoint import Checkpointer, Unusable, Unverified, verify


def new_checkpointer(root: Path) -> Checkpointer:
    return Checkpointer(root, environment={}, handle_signal=False)


@pytest.mark.parametrize("save", ["save_arrays", "save_async"])
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(np.arange(12, dtype=np.float32).reshape(3, 4), id="matrix"),
        pytest.param(np.array(3.5), id="scalar"),
        pytest.param(np.zeros((0, 3)), id="empty"),
        pytest.param(np.ones(5, ">f2"), id="big-endian half"),
        pytest.param(np.array([1 + 2j]), id="complex"),
        pytest.param(np.array([True, False]), id="bool"),
        pytest.param(np.arange(5_000_000), id="larger than a block"),
    ],
)
def test_an_array_comes_back_with_its_type_shape_and_bytes(
    tmp_path: Path, save: str, value: np.ndarray[tuple[int, ...], np.dtype[np.generic]]
) -> None:
    checkpointer = new_checkpointer(tmp_path)
    getattr(checkpointer, save)(1, {"value": value})
    checkpointer.wait()
    restored = checkpointer.restore()
    assert restored is not None
    loaded = np.asarray(restored[1]["value"])
    assert (loaded.dtype, loaded.shape) == (value.dtype, value.shape)
    assert loaded.tobytes() == value.tobytes()
    assert loaded.flags.writeable


def test_bytes_and_plain_arrays_need_no_numpy(tmp_path: Path) -> None:
    checkpointer = new_checkpointer(tmp_path)
    folder = checkpointer.save_arrays(1, {"position": b'{"epoch": 3}', "counts": array.array("q", [1, 2])})
    loaded = checkpointer.load(folder)
    assert bytes(loaded["position"]) == b'{"epoch": 3}'
    assert loaded["counts"].data.cast("q").tolist() == [1, 2]


def test_what_changes_after_save_async_returns_is_not_in_the_checkpoint(tmp_path: Path) -> None:
    checkpointer = new_checkpointer(tmp_path)
    weights = np.zeros(3_000_000, np.float32)
    for step in range(4):
        weights[:] = step
        checkpointer.save_async(step, {"weights": weights})
        weights[:] = -1
    checkpointer.wait()
    restored = checkpointer.restore()
    assert restored is not None
    assert restored[0].step == 3
    assert set(np.unique(np.asarray(restored[1]["weights"]))) == {3.0}


def test_shapes_may_change_from_one_save_to_the_next(tmp_path: Path) -> None:
    checkpointer = new_checkpointer(tmp_path)
    for step, size in enumerate((10, 5, 20)):
        checkpointer.save_async(step, {f"only{step}": np.full(size, step)})
    checkpointer.wait()
    restored = checkpointer.restore()
    assert restored is not None
    assert list(restored[1]) == ["only2"]


def test_arrays_are_restored_in_place(tmp_path: Path) -> None:
    checkpointer = new_checkpointer(tmp_path)
    folder = checkpointer.save_arrays(1, {"w": np.arange(6.0), "b": np.ones(2)})
    target = np.zeros(6)
    loaded = checkpointer.load(folder, {"w": target})
    assert target.tolist() == [0, 1, 2, 3, 4, 5]
    assert np.asarray(loaded["b"]).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("target", "why"),
    [(np.zeros(5), "bytes long"), (bytes(48), "writable"), (np.zeros((6, 2))[:, 0], "C-contiguous")],
)
def test_a_buffer_that_does_not_fit_is_refused(tmp_path: Path, target: object, why: str) -> None:
    checkpointer = new_checkpointer(tmp_path)
    folder = checkpointer.save_arrays(1, {"w": np.arange(6.0)})
    with pytest.raises(Unusable, match=why):
        checkpointer.load(folder, {"w": target})


@pytest.mark.parametrize(
    "value", [np.zeros((4, 4)).T[:2], [1, 2], "text", None, np.array(["2026"], "M8[D]")], ids=repr
)
def test_what_has_no_plain_buffer_is_refused_by_name(tmp_path: Path, value: object) -> None:
    checkpointer = new_checkpointer(tmp_path)
    with pytest.raises(Unusable, match="'momentum'"):
        checkpointer.save_async(1, {"momentum": value})
    assert checkpointer.latest() is None


def test_a_flipped_byte_is_found_while_loading_and_the_one_before_is_restored(tmp_path: Path) -> None:
    checkpointer = new_checkpointer(tmp_path)
    for step in (1, 2):
        checkpointer.save_arrays(step, {"w": np.full(100_000, step)})
    newest = tmp_path / "step-0000000002-a0"
    content = bytearray((newest / "arrays/00000.bin").read_bytes())
    content[-1] ^= 64
    (newest / "arrays/00000.bin").write_bytes(content)
    with pytest.raises(Unverified, match="older"):
        checkpointer.load(newest)
    restored = checkpointer.restore()
    assert restored is not None
    assert restored[0].step == 1


def test_an_index_that_was_changed_is_not_believed(tmp_path: Path) -> None:
    checkpointer = new_checkpointer(tmp_path)
    folder = checkpointer.save_arrays(1, {"w": np.arange(6.0)})
    index = (folder / "arrays.json").read_text().replace('"<f8"', '"<i8"')
    (folder / "arrays.json").write_text(index)
    with pytest.raises(Unverified):
        checkpointer.load(folder)


def test_a_checkpoint_of_files_has_no_arrays_to_load(tmp_path: Path) -> None:
    checkpointer = new_checkpointer(tmp_path)
    folder = checkpointer.save_bytes(1, {"a": b"1"})
    with pytest.raises(Unusable, match="no arrays"):
        checkpointer.load(folder)


def test_an_error_behind_the_scenes_surfaces_at_the_next_call_once(tmp_path: Path) -> None:
    before = threading.active_count()
    checkpointer = new_checkpointer(tmp_path)
    checkpointer.save_bytes(1, {"a": b"1"})
    other = new_checkpointer(tmp_path)
    other.save_async(1, {"a": b"2"})
    with pytest.raises(Exception, match="save a higher step"):
        other.save_async(2, {"a": b"3"})
    other.save_async(2, {"a": b"3"})
    other.wait()
    assert verify(tmp_path / "step-0000000002-a0").verified
    assert threading.active_count() <= before
