"""The sbatch round trip: a spec written as a script and read again is the same spec."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from starverse.domain.money import Money
from starverse.domain.sbatch.rendering import render
from starverse.domain.sbatch.submission import SubmitRequest, build
from starverse.domain.sbatch.values import SIGNAL_NAMES
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.specs import (
    ArraySpec,
    Dependencies,
    Dependency,
    DependencyKind,
    DiskMount,
    JobSpec,
    Network,
    OpenMode,
    Resources,
    SignalSpec,
)

NOW = datetime(2026, 3, 10, 2, 0, tzinfo=UTC)
ELSEWHERE = ZoneInfo("America/St_Johns")

printable = st.text(
    alphabet=st.characters(exclude_categories=("C", "Z"), include_characters=" "), max_size=30
)
names = printable.filter(lambda text: text.strip() != "" and text.isprintable())
texts = printable.filter(lambda text: text.isprintable() and text != "")
slugs = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
mounts = st.builds(
    DiskMount,
    st.sampled_from(["home", "two words", "数据", "it's #1"]),
    st.sampled_from(["", "/data/in", "/data/my data"]),
    st.booleans(),
)
hosts = st.lists(
    st.sampled_from(["gpu001", "gpu002", "gpu010", "n9", "n10", "head"]), unique=True, max_size=4
)
moments = st.none() | st.datetimes(datetime(2026, 3, 11), datetime(2030, 1, 1)).map(  # noqa: DTZ001
    lambda moment: moment.replace(tzinfo=UTC)
)
amounts = st.none() | st.integers(1, 10**12).map(Money)


@st.composite
def resources(draw: st.DrawFn) -> Resources:
    nodes, each, cards = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(0, 8))
    tasks = draw(st.integers(max(nodes, nodes * (each - 1) + 1), nodes * each))
    named = draw(hosts)
    return Resources(
        card_model=draw(st.none() | slugs) if cards else None,
        cards_per_node=cards,
        nodes=nodes,
        tasks=tasks,
        tasks_per_node=-(-tasks // nodes),
        cpus_per_task=draw(st.integers(1, 64)),
        memory_bytes_per_node=draw(st.none() | st.integers(1, 2**30).map(lambda kib: kib * 1024)),
        fabric=draw(st.sampled_from([None, "ib", "roce", "eth"])),
        zone=draw(st.none() | slugs),
        exclude=tuple(sorted(set(draw(hosts)) - set(named))),
        nodelist=tuple(named[:nodes]),
    )


@st.composite
def dependencies(draw: st.DrawFn) -> Dependencies:
    conditions = []
    for kind in draw(st.lists(st.sampled_from(DependencyKind), max_size=3)):
        number = None if kind is DependencyKind.SINGLETON else draw(st.integers(1, 10**6))
        index = None if number is None else draw(st.none() | st.integers(0, 99))
        delay = draw(st.integers(0, 90)) if kind is DependencyKind.AFTER else 0
        conditions.append(Dependency(kind, number, index, delay))
    unique = tuple(dict.fromkeys(conditions))
    return Dependencies(unique, draw(st.booleans()) if len(unique) > 1 else False)


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    needs = draw(resources())
    begin = draw(moments)
    defer = draw(moments)
    indices = draw(st.none() | st.lists(st.integers(0, 200), min_size=1, max_size=8, unique=True).map(sorted))
    tariffs = [Tariff.ON_DEMAND, Tariff.SPOT]
    values = st.text(
        alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"), max_size=20
    )
    array = None if indices is None else ArraySpec(tuple(indices), draw(st.none() | st.integers(1, 9)))
    signals = st.builds(
        SignalSpec, st.sampled_from(sorted(SIGNAL_NAMES.values())), st.integers(0, 65_535), st.booleans()
    )
    return JobSpec(
        name=draw(names),
        script='#!/bin/bash\n# a job\n#SBATCH --time=1 --comment=old\necho "$@"\n#SBATCH -n 9\n',
        resources=needs,
        tariff=draw(st.sampled_from(tariffs)),
        price_max=draw(amounts),
        cost_max=draw(amounts),
        window=draw(st.none() | slugs),
        time_limit_seconds=draw(st.integers(1, 366 * 86_400)),
        begin=begin,
        defer_until=defer if begin is None or defer is None else max(begin, defer),
        dependencies=draw(dependencies()),
        array=array,
        output=draw(
            st.sampled_from(["slurm-%j.out", "slurm-%A_%a.out", "logs/%x \\%j '\".txt", "/dev/null"])
        ),
        error=draw(st.sampled_from([None, "err-%5j.txt", "/workspace/err#1"])),
        open_mode=draw(st.sampled_from(OpenMode)),
        signal=draw(st.none() | signals),
        requeue=draw(st.booleans()),
        chdir=draw(st.sampled_from([".", "code", "a b/c"])),
        environment=tuple(draw(st.dictionaries(st.sampled_from(["A", "B_2", "PATH"]), values)).items()),
        comment=draw(st.none() | texts),
        cost_label=draw(st.none() | texts),
        datasets=tuple(draw(st.lists(slugs, unique=True, max_size=2))),
        disks=tuple(draw(st.lists(mounts, unique=True, max_size=2))),
        checkpoint_folder=draw(st.sampled_from([None, "ck", "out/ck 1"])),
        network=draw(st.sampled_from(Network)),
    )


@given(specs())
def test_round_trip(spec: JobSpec) -> None:
    text = render(spec)
    found = build(SubmitRequest(text), NOW, ELSEWHERE)
    assert found.faults == ()
    assert found.spec is not None
    assert replace(found.spec, script=spec.script) == spec
    assert render(found.spec) == text
    assert found.spec.script.endswith('echo "$@"\n#SBATCH -n 9\n')
