"""What a short job on each node found there, and what follows: shared paths, clock, Python, sandbox, cards.

A sample is ``name=value`` lines that the job wrote into a folder on the shared path, beside a ``nonce`` that
it had to read there. Times are seconds since 1970 by the node's own clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from starverse.domain.slurm_cluster.facts import Finding, Verdict
from starverse.domain.slurm_cluster.rules_nodes import name_some

SKEW_SECONDS_MAX = 2.0
"""Leases and money go by the launcher's own times; more than this between two clocks is too much."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One node's answer. ``values`` ``None``: no answer came; ``state`` is then what Slurm said of the job.

    ``asked_at`` and ``seen_at`` are our own clock before the submit and after the answer was read.
    """

    node: str
    asked_at: float
    seen_at: float
    values: Mapping[str, str] | None = None
    state: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a sound node answers. ``channel`` is ``""`` where launchers use no address."""

    nonce: str
    version: str
    folder: str
    channel: str = ""
    declared: bool = False
    """Whether cards are taken to be there although no driver knows them (slurm.cards_declared)."""
    uids: Mapping[str, int] = field(default_factory=dict)
    """The Unix users that workloads run as, with their numbers on the server."""


def read_sample(text: str) -> dict[str, str]:
    """``name=value`` lines; the first of equal names counts, and a torn last line is left out."""
    found: dict[str, str] = {}
    for line in text.split("\n")[:-1]:
        name, equals, value = line.partition("=")
        if equals:
            found.setdefault(name.strip(), value.strip())
    return found


def judge_samples(samples: Sequence[Sample], expected: Expected) -> tuple[Finding, ...]:
    """Findings by kind, each with the nodes that it is about; the kinds in the order of mending."""
    answered = [sample for sample in samples if sample.values is not None]
    findings = list(_unanswered(samples, expected))
    if answered:
        for kind in (_paths, _clocks, _python, _sandbox, _cards, _driver, _users, _uids, _channel):
            findings += _grouped(answered, expected, kind)
    return tuple(findings)


@dataclass(frozen=True, slots=True)
class _Said:
    """What one kind of look says of one node; equal ones become one finding."""

    name: str
    verdict: Verdict
    has: str
    needs: str
    why: str = ""
    remedy: str = ""


_Kind = Callable[[Sample, Mapping[str, str], Expected], _Said | None]


def _grouped(samples: Sequence[Sample], expected: Expected, kind: _Kind) -> list[Finding]:
    said: dict[_Said, list[str]] = defaultdict(list)
    for sample in samples:
        one = kind(sample, sample.values or {}, expected)
        if one is not None:
            said[one].append(sample.node)
    return [
        Finding(one.name, one.verdict, f"{one.has} ({name_some(nodes)})", one.needs, one.why, one.remedy)
        for one, nodes in said.items()
    ]


def _unanswered(samples: Sequence[Sample], expected: Expected) -> list[Finding]:
    by_state: dict[str, list[str]] = defaultdict(list)
    for sample in samples:
        if sample.values is None:
            by_state[sample.state or "unknown"].append(sample.node)
    findings = []
    for state, nodes in sorted(by_state.items()):
        names = name_some(nodes)
        if state.startswith("PENDING"):
            why = (
                "its job waited for the whole time: its cards are taken, or something keeps it from starting"
            )
            needs = "a free card for a moment, or more time (--wait)"
            findings.append(Finding("node sample", Verdict.UNKNOWN, f"{state} ({names})", needs, why))
            continue
        if state.startswith("COMPLETED"):
            why = f"the job ran and what it wrote into {expected.folder} is not here: the path is not shared"
            remedy = "put server.data on a file system that the nodes mount at the same path"
            findings.append(
                Finding("shared path", Verdict.BLOCKS, f"not shared ({names})", "shared", why, remedy)
            )
            continue
        why = "the job did not run to its end there"
        remedy = "scontrol show node NAME; the log of slurmd"
        findings.append(
            Finding("node sample", Verdict.BLOCKS, f"{state} ({names})", "a job that ends", why, remedy)
        )
    return findings


def _paths(_: Sample, values: Mapping[str, str], expected: Expected) -> _Said:
    if values.get("nonce") == expected.nonce:
        return _Said("shared path", Verdict.OK, f"{expected.folder} read and written", "read and written")
    why = f"the job read something else there: {values.get('nonce', 'nothing')[:80]}"
    remedy = "mount the same file system at the same path on every node"
    return _Said("shared path", Verdict.BLOCKS, "another folder of this name", "the same folder", why, remedy)


def _clocks(sample: Sample, values: Mapping[str, str], _: Expected) -> _Said:
    try:
        there = float(values.get("time", ""))
    except ValueError:
        return _Said("clock", Verdict.UNKNOWN, "not told", f"within {SKEW_SECONDS_MAX:g} s")
    skew = max(sample.asked_at - there, there - sample.seen_at, 0.0)
    needs = f"within {SKEW_SECONDS_MAX:g} s"
    if skew <= SKEW_SECONDS_MAX:
        return _Said("clock", Verdict.OK, needs, needs)
    side = "behind" if there < sample.asked_at else "ahead"
    why = "leases and bills go by the launcher's own times"
    has = f"at least {skew:.0f} s {side}"
    return _Said("clock", Verdict.BLOCKS, has, needs, why, "chrony or another NTP client on every node")


def _python(_: Sample, values: Mapping[str, str], expected: Expected) -> _Said:
    found = values.get("starverse", "")
    if found == expected.version:
        return _Said(
            "python", Verdict.OK, f"starverse {found} by {values.get('python', '')}", expected.version
        )
    why = "launchers run by the Python of slurm.python, in the version of the server"
    remedy = "install starverse on the shared path and name its Python in slurm.python"
    has = (
        f"starverse {found}" if found else f"cannot import starverse: {values.get('python_error', '')[:120]}"
    )
    return _Said("python", Verdict.BLOCKS, has, f"starverse {expected.version}", why, remedy)


def _sandbox(_: Sample, values: Mapping[str, str], __: Expected) -> _Said | None:
    if "bwrap" not in values:
        return None
    if not values["bwrap"]:
        why = "workloads run inside bubblewrap"
        return _Said("sandbox", Verdict.BLOCKS, "no bwrap", "bubblewrap", why, "apt-get install bubblewrap")
    health, what = _halves(values.get("sandbox", ""), ":")
    if health == "ok":
        return _Said("sandbox", Verdict.OK, "bubblewrap starts", "bubblewrap")
    if not health:
        return None
    remedy = "starverse doctor on the node says what to set"
    return _Said("sandbox", Verdict.BLOCKS, what.strip() or health, "bubblewrap that starts", "", remedy)


def _cards(_: Sample, values: Mapping[str, str], __: Expected) -> _Said | None:
    if "cards" not in values:
        return None
    if values["cards"]:
        return _Said("cards bound", Verdict.OK, "Slurm names the card it bound", "named to the job")
    why = "launchers read the indices from the job's environment (SLURM_JOB_GPUS)"
    remedy = "File= of character devices in gres.conf, or AutoDetect=nvml"
    return _Said("cards bound", Verdict.BLOCKS, "no index in the job", "named to the job", why, remedy)


def _driver(_: Sample, values: Mapping[str, str], expected: Expected) -> _Said | None:
    if "driver" not in values or not values.get("cards"):
        return None
    needs = "each bound card is known to it"
    if values["driver"] == "ok":
        return _Said("card driver", Verdict.OK, needs, needs)
    if expected.declared:
        why = "slurm.cards_declared is set: jobs start without the cards, for trials only"
        return _Said("card driver", Verdict.WARN, values["driver"], needs, why)
    why = "a launcher takes the UUIDs of its cards from the driver, and starts nothing without them"
    remedy = "the NVIDIA driver on the node; only for trials without cards: slurm.cards_declared = true"
    return _Said("card driver", Verdict.BLOCKS, values["driver"], needs, why, remedy)


def _users(_: Sample, values: Mapping[str, str], __: Expected) -> _Said | None:
    name, uid = _halves(values.get("user", ""), " ")
    if not uid:
        return None
    if uid == "0":
        return _Said("unix user", Verdict.OK, "root: launchers drop to each team's user", "not root inside")
    return _Said("unix user", Verdict.OK, name, "one that exists on the nodes")


def _uids(_: Sample, values: Mapping[str, str], expected: Expected) -> _Said | None:
    if not expected.uids:
        return None
    other = [
        f"{name} is {values.get(f'uid.{name}') or 'missing'}, {uid} on the server"
        for name, uid in sorted(expected.uids.items())
        if values.get(f"uid.{name}") != str(uid)
    ]
    if not other:
        return _Said("unix users", Verdict.OK, "the same numbers", "the same numbers everywhere")
    why = "workloads would write as somebody else"
    return _Said(
        "unix users", Verdict.BLOCKS, "; ".join(other), "the same numbers everywhere", why, "LDAP or alike"
    )


def _channel(_: Sample, values: Mapping[str, str], expected: Expected) -> _Said | None:
    if not expected.channel:
        return None
    answer = values.get("channel", "")
    if answer == "ok":
        return _Said("channel", Verdict.OK, f"{expected.channel} answers", "reached from the nodes")
    why = "launchers dial out to it; without it only files tell how a job fares"
    remedy = "server.channel must be an address that the nodes reach, its port open"
    return _Said("channel", Verdict.BLOCKS, answer or "not tried", expected.channel, why, remedy)


def _halves(text: str, mark: str) -> tuple[str, str]:
    before, _, after = text.partition(mark)
    return before, after
