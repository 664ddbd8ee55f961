"""The openb traces as they are read, brought to a load; both benchmarks on a tiny one."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from benchmarks import placement_speed
from benchmarks.openb import Arrival, arrivals, read_larger_nodes, read_nodes, read_tasks
from benchmarks.peers.packing_bound import bound_percent
from benchmarks.placement import Settings, measure

from starverse.domain.scheduling.fragmentation import NodeRoom, Task

POD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
TASKS = ["p,8000,1024,1,1000,", "p,1000,1024,1,500,", "p,1000,1024,0,0,", "p,16000,1024,2,1000,G2|T4"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pods").mkdir()
    (tmp_path / "fgd-published").mkdir()
    nodes = "sn,cpu_milli,memory_mib,gpu,model\n" + "n,32000,262144,4,G2\n" * 4 + "n,64000,262144,2,T4\n" * 2
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(nodes)
    larger = "gpu_model,gpu_capacity_num,cpu_num,node_name\n" + "A,8,96,n\n" * 12
    (tmp_path / "alibaba_v2026_spot_gpu_nodes.csv").write_text(larger)
    with gzip.open(tmp_path / "pods" / "openb_pod_list_default.csv.gz", "wt") as text:
        text.write(POD + "\n".join(TASKS * 3) + "\n")
    with gzip.open(tmp_path / "fgd-published" / "analysis_allo_discrete.csv.gz", "wt") as text:
        text.write("workload,sc_policy,seed,100\nopenb_pod_list_default,06-FGD,42,80\n")
        text.write("openb_pod_list_default,05-BestFit,42,70\n")
    return tmp_path


def test_the_list_is_brought_to_the_load_and_cut(folder: Path) -> None:
    tasks = read_tasks(folder, "default")
    assert tasks[3] == Arrival(Task(16_000, 2, 1_000, frozenset({"G2", "T4"})), 1024)
    capacity = sum(sum(node.cards) for node in read_nodes(folder))
    taken = arrivals(tasks, capacity, 1)
    asked = sum(arrival.task.milli for arrival in taken)
    assert capacity <= asked < capacity + 2_000
    assert taken == arrivals(tasks, capacity, 1) != arrivals(tasks, capacity, 2)
    assert len(read_larger_nodes(folder)) == 12


def test_no_more_than_the_cards_of_the_models_asked_for() -> None:
    nodes = [NodeRoom("a", 1, 1, (1000,) * 3), NodeRoom("b", 1, 1, (1000,))]
    named = Arrival(Task(1, 1, models=frozenset({"b"})), 1)
    assert bound_percent(nodes, [named] * 4) == 25
    assert bound_percent(nodes, [named] * 2 + [Arrival(Task(1, 1), 1)] * 2) == 75
    assert bound_percent(nodes, [Arrival(Task(1, 1), 1)] * 9) == 100


def test_quality_stands_beside_published_and_measured_peers(folder: Path) -> None:
    report = measure(Settings(folder, seeds=2, workloads=("default",)))
    gain, beside_rule, _, beside_bound = report.figures
    assert gain.at_least == 0.5
    assert "published FGD 80.00 %" in gain.note
    assert beside_rule.measured == pytest.approx(gain.measured + 80, abs=0.01)
    assert beside_bound.ratio is not None
    assert beside_bound.ratio <= 1


def test_speed_is_shown_for_both_lists(folder: Path) -> None:
    names = [figure.name for figure in placement_speed.measure(folder, 10, 1).figures]
    assert names[0] == "6 nodes: decisions"
    assert names[-1] == "12 nodes: decisions"
