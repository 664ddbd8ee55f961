"""Benchmark 1: cost of work with a deadline on public spot traces, beside the optimum in hindsight.

``python -m benchmarks planner --spot FOLDER``: 9 zones, 16 starts each, 48 h of work, 9.75-minute ticks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.peers.deadline_policies import Greedy, UniformProgress, offline_optimum
from benchmarks.report import Figure, Report, emit
from starverse.domain.planning.markov import AGES, PoolModel, states_of
from starverse.domain.planning.policy import Action, DeadlinePolicy, State, Work

TICK, JOINED, WORK = 585, 3, 296
SLACKS = {1.08: (1.07, 1.18), 1.25: (1.035, 1.10), 1.5: (1.025, 1.07), 2.0: (1.025, 1.06)}
PRICES = (0.3, 0.62)
Costs = dict[tuple[float, float, str], list[float]]
Decide = Callable[[State, bool], Action]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spot", type=Path, required=True)
    parser.add_argument("--starts", type=int, default=16)
    parser.add_argument("--quick", action="store_true", help="one start in two zones")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    zones = [zone(path) for path in sorted(given.spot.glob("*.json"))]
    starts = 1 if given.quick else given.starts
    emit(measure(zones[:2] if given.quick else zones, starts), as_json=given.json)
    return 0


def zone(path: Path) -> list[bool]:
    """One value a tick: there are cards when there are in each of the three observations that make it up."""
    data = np.array(json.loads(path.read_text("utf-8"))["data"]) > 0
    whole = len(data) // JOINED * JOINED
    return [bool(ups.all()) for ups in data[:whole].reshape(-1, JOINED)]


def measure(zones: Sequence[list[bool]], starts: int) -> Report:
    """Each zone, start, price and slack; a model sees nothing from its start on."""
    costs: Costs = defaultdict(list)
    missed = 0
    longest = int(WORK * max(SLACKS))
    for trace in zones:
        for start in np.linspace(len(trace) // 5, len(trace) - longest, starts).astype(int):
            model = PoolModel.fitted(trace[:start], TICK)
            states = states_of(trace)
            for price in PRICES:
                policy = DeadlinePolicy(Work(WORK * TICK, longest * TICK, TICK), model, price)
                for slack in SLACKS:
                    ticks = int(WORK * slack)
                    best = offline_optimum(trace[start : start + ticks], WORK, price)
                    deciders: dict[str, Decide] = {
                        "planner": _of_policy(policy),
                        "uniform progress": UniformProgress(ticks, WORK).decide,
                        "greedy": Greedy().decide,
                    }
                    for name, decide in deciders.items():
                        cost = run(decide, states[start : start + ticks].tolist(), price)
                        missed += cost is None and name == "planner"
                        costs[price, slack, name].append((cost or np.inf) / best)
                    costs[price, slack, "on demand"].append((WORK + 1) / best)
    return report(costs, missed, starts, len(zones))


def _of_policy(policy: DeadlinePolicy) -> Decide:
    return lambda state, _up: policy.decide(state)


def run(decide: Decide, pools: Sequence[int], price: float) -> float | None:
    """Cost in ticks on demand; ``None`` when the deadline is missed."""
    work, ran, cost = WORK, Action.WAIT, 0.0
    for tick, pool in enumerate(pools):
        action = decide(State(len(pools) - tick, work, pool, ran), pool >= len(AGES))
        work -= (
            action is ran and action is not Action.WAIT and (action is Action.ON_DEMAND or pool >= len(AGES))
        )
        cost += (0, price, 1)[action]
        if not work:
            return cost
        ran = action if action is not Action.SPOT or pool >= len(AGES) else Action.WAIT
    return None


def report(costs: Costs, missed: int, starts: int, zones: int) -> Report:
    """Mean and p90 of cost / optimum of each price and slack; the peers' means beside the planner's."""
    figures = [Figure("deadlines missed by the planner", missed, "plans", at_most=0)]
    for price in PRICES:
        for slack, (mean_target, p90_target) in SLACKS.items():
            ours = costs[price, slack, "planner"]
            judged = price == PRICES[0]
            where = f"spot at {price}, slack {slack}"
            p90 = float(np.quantile(ours, 0.9))
            mean = statistics.fmean(ours)
            figures.append(
                Figure(f"mean, {where}", mean, "x offline optimum", at_most=mean_target if judged else None)
            )
            figures.append(
                Figure(f"p90, {where}", p90, "x offline optimum", at_most=p90_target if judged else None)
            )
            for peer in ("uniform progress", "greedy", "on demand"):
                theirs = statistics.fmean(costs[price, slack, peer])
                figures.append(Figure(f"mean, {where}", mean, "x offline optimum", peer, theirs, at_most=1))
    conditions = {
        "tick_seconds": TICK,
        "cold_start_ticks": 1,
        "work_ticks": WORK,
        "starts_of_each_zone": starts,
        "zones": zones,
        "clairvoyant": "offline optimum",
        "seed": "none: starts are evenly spaced",
    }
    return Report(1, "planner", figures, conditions)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
