"""What the settings of slurm.conf must be for the platform, each with its reason.

The platform decides by itself: Slurm's requeue, preemption and reservations stay off, one allocation is one
Slurm job, and the queue is read every second or two (manual page of slurm.conf of 22.05; figures measured).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starverse.domain.slurm_cluster.facts import ClusterFacts, Finding, Verdict, Wanted
from starverse.domain.slurm_cluster.reading import read_seconds_setting

TRIED_VERSIONS = ("22.05",)
"""Releases that the tests run on."""

JOB_AGE_SECONDS_MIN = 60
SLURMD_TIMEOUT_SECONDS_MAX = 60
QUICK_SCHEDULING = "sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0"
_Rule = Callable[[ClusterFacts, Wanted], Finding]


def judge_settings(facts: ClusterFacts, wanted: Wanted) -> tuple[Finding, ...]:
    """One finding for each setting that matters, the ones that block first in the list of rules."""
    return tuple(rule(facts, wanted) for rule in _RULES)


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting with its reason; ``tell`` makes the finding, with the line to write where it is not well."""

    name: str
    needs: str
    why: str
    line: str = ""

    def tell(self, settings: Mapping[str, str], verdict: Verdict) -> Finding:
        line = self.line or f"{self.name}={self.needs}"
        has = settings.get(self.name, "")
        remedy = "" if verdict is Verdict.OK else line
        return Finding(self.name, verdict, has or "not set", self.needs, self.why, remedy)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _select(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting("SelectType", "select/cons_tres", "the only plugin that gives out single cards")
    good = facts.settings.get("SelectType") == rule.needs
    return rule.tell(facts.settings, Verdict.OK if good else Verdict.BLOCKS)


def _select_parameters(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting(
        "SelectTypeParameters",
        "CR_Core_Memory or CR_CPU_Memory",
        "without Memory Slurm places jobs on nodes whose memory is given out already",
        "SelectTypeParameters=CR_Core_Memory",
    )
    good = "MEMORY" in facts.settings.get("SelectTypeParameters", "").upper()
    return rule.tell(facts.settings, Verdict.OK if good else Verdict.WARN)


def _gres_types(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting("GresTypes", "gpu", "cards are asked for as gres/gpu")
    good = "gpu" in _words(facts.settings.get("GresTypes", ""))
    return rule.tell(facts.settings, Verdict.OK if good else Verdict.BLOCKS)


def _requeue_exit(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting(
        "RequeueExit",
        "without 0, 1, 137, 143",
        "Slurm requeues a batch job that ends with such a code, --no-requeue or not (measured); "
        "launchers end with 0, or with these when they are killed, and the platform resumes by itself",
        "# take 0, 1, 137, 143 out of RequeueExit and RequeueExitHold",
    )
    codes = _codes(facts.settings.get("RequeueExit", "")) | _codes(facts.settings.get("RequeueExitHold", ""))
    verdict = Verdict.BLOCKS if 0 in codes else Verdict.WARN if codes & {1, 137, 143} else Verdict.OK
    return rule.tell(facts.settings, verdict)


def _codes(text: str) -> frozenset[int]:
    """Exit codes of ``1-3,99``."""
    found: set[int] = set()
    for word in _words(text):
        first, _, last = word.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _requeue(facts: ClusterFacts, wanted: Wanted) -> Finding:
    rule = _Setting(
        "JobRequeue",
        "0",
        "the platform resumes by itself: sbatch is told --no-requeue, slurmrestd v0.0.38 cannot be",
    )
    never = facts.settings.get("JobRequeue", "1") == "0"
    return rule.tell(facts.settings, Verdict.BLOCKS if wanted.rest and not never else Verdict.OK)


def _root_jobs(facts: ClusterFacts, wanted: Wanted) -> Finding:
    rule = _Setting(
        "DisableRootJobs",
        "NO, or a platform that does not run as root",
        "a root platform submits as root, and its launchers drop to the Unix user of each team; "
        "one that runs as a service user keeps all workloads under that user, each in its sandbox",
        "DisableRootJobs=NO",
    )
    refused = wanted.as_root and facts.settings.get("DisableRootJobs", "No").lower() == "yes"
    return rule.tell(facts.settings, Verdict.BLOCKS if refused else Verdict.OK)


def _cred_expire(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting(
        "AuthInfo",
        "any",
        "cred_expire delays jobs that Slurm itself requeues; the platform's are new jobs each time",
    )
    return rule.tell(facts.settings, Verdict.OK)


def _preemption(facts: ClusterFacts, wanted: Wanted) -> Finding:
    rule = _Setting(
        "PreemptType",
        "preempt/none, or PreemptMode=OFF",
        "the platform gives notice and reclaims; a job that Slurm preempts has no time for a checkpoint",
    )
    if facts.settings.get("PreemptType", "preempt/none") == "preempt/none":
        return rule.tell(facts.settings, Verdict.OK)
    ours = [p for p in facts.partitions if not wanted.partitions or p.name in wanted.partitions]
    exposed = [p.name for p in ours if p.preempt_mode != "OFF"]
    by_qos = facts.settings.get("PreemptType") == "preempt/qos"
    if not exposed and not by_qos:
        return rule.tell(facts.settings, Verdict.OK)
    reason = f"{rule.why} (open to it: {', '.join(exposed)})" if exposed else f"{rule.why} (by QOS)"
    line = (
        "PreemptMode=OFF in the lines of these partitions" if exposed else "PreemptMode=OFF for the QOS used"
    )
    return _Setting(rule.name, rule.needs, reason, line).tell(
        facts.settings, Verdict.BLOCKS if exposed else Verdict.WARN
    )


def _binding(facts: ClusterFacts, _: Wanted) -> Finding:
    constrained = facts.settings.get("ConstrainDevices", "").lower() == "yes"
    plugin = facts.settings.get("TaskPlugin", "")
    has = f"{plugin or 'no task plugin'}, ConstrainDevices={'yes' if constrained else 'no'}"
    needs = "task/cgroup with ConstrainDevices=yes in cgroup.conf"
    if constrained and "cgroup" in plugin:
        why = "Slurm picks the card indices and enforces them; the platform binds what it reports"
        return Finding("card binding", Verdict.OK, has, needs, why)
    why = (
        "Slurm picks the card indices, but keeps no job from other cards; the platform's sandbox does, "
        "jobs that others start on these nodes are free to"
    )
    return Finding("card binding", Verdict.WISH, has, needs, why, "TaskPlugin=task/cgroup,task/affinity")


def _link_quality(_: ClusterFacts, __: Wanted) -> Finding:
    why = (
        "which cards of a node a job gets is Slurm's choice, so good links between them (NVLink, one socket) "
        "are a wish here, not a promise"
    )
    return Finding("card links", Verdict.WISH, "Slurm chooses the cards", "nothing to set", why)


def _process_tracking(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting(
        "ProctrackType",
        "proctrack/cgroup",
        "a cancelled job must leave no process behind",
    )
    kind = facts.settings.get("ProctrackType", "")
    verdict = {"proctrack/cgroup": Verdict.OK, "proctrack/linuxproc": Verdict.WISH}.get(kind, Verdict.WARN)
    return rule.tell(facts.settings, verdict)


def _authentication(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting("AuthType", "auth/munge", "with auth/none any user of a node can claim to be any other")
    bad = facts.settings.get("AuthType", "") == "auth/none"
    return rule.tell(facts.settings, Verdict.WARN if bad else Verdict.OK)


def _token_authentication(facts: ClusterFacts, wanted: Wanted) -> Finding:
    rule = _Setting(
        "AuthAltTypes",
        "auth/jwt",
        "slurmrestd knows the platform by a token; without it the platform uses sbatch and squeue",
        "AuthAltTypes=auth/jwt and AuthAltParameters=jwt_key=/etc/slurm/jwt.key",
    )
    good = "auth/jwt" in _words(facts.settings.get("AuthAltTypes", ""))
    bad = Verdict.BLOCKS if wanted.rest else Verdict.WISH
    return rule.tell(facts.settings, Verdict.OK if good else bad)


def _kept_jobs(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting("MinJobAge", "300", "an ended job must stay in the queue until a poll has seen it")
    seconds = read_seconds_setting(facts.settings, "MinJobAge")
    good = seconds is None or seconds == 0 or seconds >= JOB_AGE_SECONDS_MIN
    return rule.tell(facts.settings, Verdict.OK if good else Verdict.WARN)


def _dead_nodes(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting(
        "SlurmdTimeout", "60", "a dead node is known as such only after it (and its jobs move then)"
    )
    seconds = read_seconds_setting(facts.settings, "SlurmdTimeout")
    good = seconds is not None and 0 < seconds <= SLURMD_TIMEOUT_SECONDS_MAX
    return rule.tell(facts.settings, Verdict.OK if good else Verdict.WISH)


def _returning_nodes(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting(
        "ReturnToService", "2", "with 0 a node that was away stays down until somebody resumes it"
    )
    good = facts.settings.get("ReturnToService", "0") != "0"
    return rule.tell(facts.settings, Verdict.OK if good else Verdict.WISH)


def _kill_wait(facts: ClusterFacts, wanted: Wanted) -> Finding:
    rule = _Setting(
        "KillWait",
        str(wanted.kill_after_seconds),
        "cards of a job that ignores TERM come free this much later",
    )
    seconds = read_seconds_setting(facts.settings, "KillWait")
    good = seconds is not None and seconds <= wanted.kill_after_seconds
    return rule.tell(facts.settings, Verdict.OK if good else Verdict.WISH)


def _scheduling(facts: ClusterFacts, _: Wanted) -> Finding:
    given = _words(facts.settings.get("SchedulerParameters", ""))
    rule = _Setting(
        "SchedulerParameters",
        QUICK_SCHEDULING,
        "from submit to running takes about 3 s with the defaults, about 0.4 s with these (measured)",
    )
    if any(word == "defer" or word.startswith("defer_batch") for word in given):
        why = "defer and defer_batch keep each job waiting for the next round of the scheduler"
        return _Setting(rule.name, "without defer, defer_batch", why, "# remove defer, defer_batch").tell(
            facts.settings, Verdict.WARN
        )
    good = all(word in given for word in QUICK_SCHEDULING.split(","))
    return rule.tell(facts.settings, Verdict.OK if good else Verdict.WISH)


def _part_limits(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting(
        "EnforcePartLimits", "ALL", "without it Slurm queues a job that no partition will ever start"
    )
    good = facts.settings.get("EnforcePartLimits", "NO") in ("ALL", "ANY", "YES")
    return rule.tell(facts.settings, Verdict.OK if good else Verdict.WISH)


def _job_count(facts: ClusterFacts, _: Wanted) -> Finding:
    cards = sum(card.count for node in facts.nodes for card in node.cards)
    rule = _Setting(
        "MaxJobCount", str(max(10_000, 4 * cards)), "each allocation is a job, and ended ones count"
    )
    count = read_seconds_setting(facts.settings, "MaxJobCount")
    good = count is None or count >= 2 * cards
    return rule.tell(facts.settings, Verdict.OK if good else Verdict.WARN)


def _privacy(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting(
        "PrivateData",
        "without nodes, partitions",
        "the platform reads nodes and partitions as an ordinary user",
        "# remove nodes, partitions from PrivateData",
    )
    hidden = {"nodes", "partitions"} & set(_words(facts.settings.get("PrivateData", "")))
    return rule.tell(facts.settings, Verdict.WARN if hidden else Verdict.OK)


def _accounting(facts: ClusterFacts, _: Wanted) -> Finding:
    rule = _Setting(
        "AccountingStorageEnforce",
        "none, or an association for the platform's user",
        "with associations or limits a user without an account is refused at submit",
        "sacctmgr add user NAME account=ACCOUNT",
    )
    enforced = set(_words(facts.settings.get("AccountingStorageEnforce", ""))) - {"none"}
    return rule.tell(facts.settings, Verdict.WISH if enforced else Verdict.OK)


def _version(facts: ClusterFacts, _: Wanted) -> Finding:
    version = facts.settings.get("SLURM_VERSION", "")
    tried = any(version.startswith(known) for known in TRIED_VERSIONS)
    why = f"tests run on {', '.join(TRIED_VERSIONS)}; others are read with care and were not tried"
    name = "SLURM_VERSION"
    return Finding(
        name, Verdict.OK if tried else Verdict.WISH, version or "not said", " or ".join(TRIED_VERSIONS), why
    )


_RULES: tuple[_Rule, ...] = (
    _version,
    _select,
    _select_parameters,
    _gres_types,
    _preemption,
    _authentication,
    _token_authentication,
    _binding,
    _link_quality,
    _process_tracking,
    _requeue_exit,
    _requeue,
    _root_jobs,
    _cred_expire,
    _kept_jobs,
    _job_count,
    _dead_nodes,
    _returning_nodes,
    _kill_wait,
    _scheduling,
    _part_limits,
    _privacy,
    _accounting,
)
