"""Whatever a line holds, reading it answers values of the declared types or raises ``ValueError`` alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starverse.domain.workloads.launch import Desired, LauncherState
from starverse.domain.workloads.lines import INSTANT_MAX
from starverse.node.gang import Order
from starverse.node.hello import Hello, WayAsked

STATE = LauncherState("a-1", 1, "running", "boot", 5.0, ready_at=4.0)
WHOLE: dict[Callable[[str], Any], dict[str, Any]] = {
    LauncherState.from_json: json.loads(STATE.to_json()),
    Desired.from_json: json.loads(Desired().to_json()),
    Order.from_json: json.loads(Order().to_json()),
    Hello.from_json: {"version": 1, "allocation_id": "a-1", "token": "t"},
    WayAsked.from_json: {"node_index": 1},
}
NASTY = [
    "1e999",
    "-1e999",
    "NaN",
    "1e300",
    "9" * 4000,
    "9" * 5000,
    '"\\ud800"',
    '"\\u0000"',
    "[" * 9000,
    "-1",
    "true",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def answers_or_refuses(read: Callable[[str], Any], text: str) -> None:
    try:
        found = read(text)
    except ValueError:
        return
    if isinstance(found, LauncherState):
        datetime.fromtimestamp(found.alive_at, UTC)
        assert LauncherState.from_json(found.to_json()) == found
    for name in found.__dataclass_fields__:
        str(getattr(found, name)).encode()


@pytest.mark.parametrize("read", WHOLE, ids=lambda read: read.__qualname__)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_json_line_is_read_or_refused(read: Callable[[str], Any], data: st.DataObject) -> None:
    whole = WHOLE[read]
    names = [*LauncherState.__dataclass_fields__, *Order.__dataclass_fields__, *whole]
    changes = data.draw(st.dictionaries(st.sampled_from(names), VALUES, max_size=3))
    answers_or_refuses(read, json.dumps({**whole, **changes}))
    answers_or_refuses(read, json.dumps(data.draw(VALUES)))
    answers_or_refuses(read, data.draw(st.text()))


@pytest.mark.parametrize("read", WHOLE, ids=lambda read: read.__qualname__)
@pytest.mark.parametrize("nasty", NASTY, ids=lambda nasty: nasty[:8])
def test_numbers_and_texts_that_json_can_say_and_nobody_can_use(
    read: Callable[[str], Any], nasty: str
) -> None:
    answers_or_refuses(read, nasty)
    for name in WHOLE[read]:
        for form in (nasty, f"[{nasty}]", f'[["x",[{nasty}]]]', f'[["x",{nasty}]]', f"[[{nasty}]]"):
            answers_or_refuses(read, json.dumps({**WHOLE[read], name: "@@"}).replace('"@@"', form))


@pytest.mark.parametrize(
    "wrong",
    [
        {"alive_at": "x"},
        {"alive_at": True},
        {"alive_at": float("inf")},
        {"alive_at": float("nan")},
        {"ready_at": -1.0},
        {"phase": "asleep"},
        {"attempt": 1.5},
        {"attempt": 2**31},
        {"failure": None},
        {"out_of_memory": 0},
        {"bound": [["x", [float("inf")]]]},
        {"bound": [["x", [-1]]]},
        {"bound": {"x": [1]}},
    ],
    ids=str,
)
def test_a_state_with_anything_wrong_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"LauncherState|phase"):
        LauncherState.from_json(json.dumps({**json.loads(STATE.to_json()), **wrong}))


def test_a_state_that_lacks_something_is_refused() -> None:
    with pytest.raises(ValueError, match="without boot_id"):
        LauncherState.from_json('{"allocation_id":"a","attempt":1,"phase":"claimed","alive_at":1}')


def test_money_for_longer_than_any_calendar_is_no_fault() -> None:
    assert Desired.from_json('{"funded_until":1e15}').funded_until == INSTANT_MAX


def test_texts_that_no_database_takes_are_replaced() -> None:
    state = replace(STATE, failure="file \udcff\0")
    assert LauncherState.from_json(state.to_json()).failure == "file ?\N{REPLACEMENT CHARACTER}"
