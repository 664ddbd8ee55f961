"""What counts as unusable, and where tasks go so that little becomes so."""

from __future__ import annotations

import numpy as np
import pytest

from starverse.domain.scheduling.fragmentation import (
    NodeRoom,
    Place,
    Placer,
    Task,
    WholeCards,
    Workload,
    expected_unusable,
)

WHOLE = Task(8_000, 1)
HALF = Task(1_000, 1, 500)


def node(cards: tuple[int, ...], cpu_milli: int = 64_000, model: str = "a") -> NodeRoom:
    return NodeRoom(model, cpu_milli, 1 << 20, cards)


@pytest.mark.parametrize(
    ("room", "task", "unusable"),
    [
        (node((1000, 1000)), WHOLE, 0.0),
        (node((1000, 400)), WHOLE, 0.4),
        (node((1000, 1000), cpu_milli=8_000), WHOLE, 1.0),
        (node((1000, 1000)), Task(1_000, 2), 0.0),
        (node((1000,)), Task(1_000, 2), 1.0),
        (node((900,)), HALF, 0.4),
        (node((1000,)), Task(1_000, 1, models=frozenset({"b"})), 1.0),
        (node((0, 0)), WHOLE, 0.0),
    ],
)
def test_what_no_copy_of_a_usual_task_can_use_is_unusable(
    room: NodeRoom, task: Task, unusable: float
) -> None:
    assert expected_unusable(Workload.of_arrivals([task]), [room]) == pytest.approx(unusable)


def test_without_a_workload_nothing_free_is_known_to_be_of_use() -> None:
    assert expected_unusable(Workload.of_arrivals([]), [node((1000, 500))]) == 1.5
    assert expected_unusable(Workload.of_arrivals([Task(1_000, 0, 0)]), [node((1000,))]) == 1.0
    assert expected_unusable(Workload.of_arrivals([WHOLE]), []) == 0.0


def test_rare_tasks_are_no_part_of_the_usual_workload() -> None:
    usual = Workload.of_arrivals([WHOLE] * 98 + [HALF] * 2, covered=0.97)
    assert usual.tasks == (WHOLE,)
    assert usual.shares == (1.0,)


def test_a_part_goes_onto_a_card_that_is_begun() -> None:
    usual = Workload.of_arrivals([WHOLE, WHOLE, HALF])
    placer = Placer(usual, [node((1000, 1000)), node((1000, 500))])
    assert placer.place(HALF) == Place(1, (1,))
    assert placer.place(Task(1_000, 2)) == Place(0, (0, 1))
    assert placer.place(Task(1_000, 2)) is None


def test_a_model_asked_for_by_name_is_left_to_those_who_ask() -> None:
    named = Task(8_000, 1, models=frozenset({"b"}))
    placer = Placer(Workload.of_arrivals([WHOLE, named]), [node((1000,), model="b"), node((1000,) * 3)])
    assert placer.place(WHOLE) == Place(1, (0,))
    assert placer.place(named) == Place(0, (0,))


def test_cards_keep_the_cpus_they_will_need() -> None:
    usual = Workload.of_arrivals([WHOLE])
    rooms = [node((1000, 1000), cpu_milli=16_000), node((1000, 1000), cpu_milli=40_000)]
    assert Placer(usual, rooms).place(Task(8_000, 0, 0)) == Place(1, ())


def test_memory_and_cpus_say_no() -> None:
    placer = Placer(Workload.of_arrivals([WHOLE]), [node((1000,))])
    assert placer.place(WHOLE, memory_mib=(1 << 20) + 1) is None
    assert placer.place(Task(64_001, 1)) is None
    assert placer.place(WHOLE, memory_mib=1 << 20) == Place(0, (0,))


def test_remembered_costs_answer_as_thinking_afresh_does() -> None:
    chance = np.random.default_rng(7)
    kinds = [WHOLE, HALF, Task(4_000, 1, 300), Task(16_000, 2), Task(4_000, 0, 0)]
    rooms = [node((1000,) * 4, 32_000, "ab"[row % 2]) for row in range(6)]
    usual = Workload.of_arrivals(kinds)
    placer = Placer(usual, rooms)
    for pick in chance.integers(0, len(kinds), 40):
        state = placer.state
        rooms = [
            NodeRoom(rooms[row].model, int(state.cpu_milli[row]), 1 << 20, tuple(state.cards[row].tolist()))
            for row in range(len(rooms))
        ]
        task = kinds[pick]
        assert placer.place(task) == Placer(usual, rooms).place(task)


def test_whole_cards_lose_most_where_a_usual_request_no_longer_fits() -> None:
    usual = WholeCards([(8, 64)] * 3 + [(1, 8)] + [(0, 4)] * 9, 8, 64)
    assert usual.requests == ((8, 64), (1, 8))
    cards, cpus = np.array([8, 5]), np.array([64, 64])
    whole, begun = usual.losses(cards, cpus, (1, 8))
    assert whole > begun
    assert WholeCards([], 8, 64).losses(cards, cpus, (1, 8)).tolist() == [0, 0]
    assert usual.losses(cards, cpus, (0, 4)).tolist() == [0, 0]
