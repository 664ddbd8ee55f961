"""The one table of options: every option of sbatch (manual pages of Slurm 22.05 to 24.05) and our own.

Each is *supported*, *ignored* with a notice, or *refused* with a reason; what is not in the table is
refused with the nearest names. One row says everything about an option.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from enum import StrEnum

from starverse.domain.sbatch import cards, hostlists, patterns, times, values


class Status(StrEnum):
    SUPPORTED = "supported"
    IGNORED = "ignored"
    REFUSED = "refused"


class Takes(StrEnum):
    """Whether a value follows; ``OPTIONAL`` only as ``--name=value``, as for getopt."""

    NOTHING = "nothing"
    VALUE = "value"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class Context:
    """What some values depend on: ``now`` (aware) and ``zone`` for times, the caller's ``environment``."""

    now: datetime
    zone: tzinfo
    environment: Mapping[str, str] = field(default_factory=dict)
    vocabulary: cards.Vocabulary = field(default_factory=cards.Vocabulary)


Parser = Callable[[str, Context], object]


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``text`` is its help, the reason why it is ignored, or the reason why it is refused.

    ``key`` groups options that set the same thing (``--requeue`` and ``--no-requeue``): the last one
    wins, and a stronger source silences the key of a weaker one. ``client`` options only concern the
    command that submits.
    """

    name: str
    short: str
    takes: Takes
    status: Status
    text: str
    parse: Parser | None = None
    variables: tuple[str, ...] = ()
    key: str = ""
    repeats: bool = False
    client: bool = False
    placeholder: str = ""

    @property
    def typed(self) -> str:
        """As people type it: ``--gres``."""
        return f"--{self.name}"


def _plain(parse: Callable[[str], object]) -> Parser:
    return lambda text, context: parse(text)


def _flag(value: object) -> Parser:
    return lambda text, context: value


def _supported(
    name: str,
    short: str,
    placeholder: str,
    text: str,
    parse: Parser,
    *,
    variables: str = "",
    key: str = "",
    repeats: bool = False,
    client: bool = False,
) -> Option:
    """A supported option; without a placeholder it takes nothing; ``variables`` are separated by spaces."""
    return Option(
        name,
        short,
        Takes.VALUE if placeholder else Takes.NOTHING,
        Status.SUPPORTED,
        text,
        parse,
        variables=tuple(variables.split()),
        key=key or name,
        repeats=repeats,
        client=client,
        placeholder=placeholder,
    )


def _count(name: str, short: str, text: str, variables: str = "") -> Option:
    return _supported(name, short, "N", text, _plain(values.count), variables=variables)


def _size(name: str, text: str, variables: str) -> Option:
    return _supported(
        name, "", "SIZE[K|M|G|T]", text, _plain(values.memory_bytes), variables=variables, key="mem"
    )


def _gpus(name: str, short: str, text: str, variables: str) -> Option:
    return _supported(
        name, short, "[MODEL:]N", text, lambda t, c: cards.gpus(t, c.vocabulary), variables=variables
    )


def _begin(text: str, context: Context) -> object:
    return times.parse_begin(text, context.now, context.zone)


_CARDS_AND_NODES = (
    _supported(
        "gres", "", "gpu[:MODEL][:N]", "cards on each node", lambda t, c: cards.gres(t, c.vocabulary),
        variables="SBATCH_GRES",
    ),
    _gpus("gpus", "G", "cards in all, spread evenly over the nodes", "SBATCH_GPUS"),
    _gpus("gpus-per-node", "", "cards on each node", "SBATCH_GPUS_PER_NODE"),
    _gpus("gpus-per-task", "", "cards of each task", "SBATCH_GPUS_PER_TASK"),
    _supported("nodes", "N", "N", "nodes; of a range the smaller number", _plain(values.node_count)),
    _count("ntasks", "n", "tasks in all (ranks that srun starts)"),
    _count("ntasks-per-node", "", "tasks on each node"),
    _count("cpus-per-task", "c", "CPUs of each task"),
    _count("cpus-per-gpu", "", "CPUs for each card", "SBATCH_CPUS_PER_GPU"),
    _size("mem", "memory of each node", "SBATCH_MEM_PER_NODE"),
    _size("mem-per-cpu", "memory for each CPU", "SBATCH_MEM_PER_CPU"),
    _size("mem-per-gpu", "memory for each card", "SBATCH_MEM_PER_GPU"),
    _supported(
        "constraint", "C", "FEATURE[&FEATURE]", "fabric (ib, roce, eth), model:NAME, zone:NAME",
        lambda t, c: cards.constraint(t, c.vocabulary), variables="SBATCH_CONSTRAINT",
    ),
    _supported(
        "partition", "p", "NAME", "all, a fabric, spot, idle, a model, a zone, or a pool bj1/rtx4090/ib",
        lambda t, c: cards.partition(t, c.vocabulary), variables="SBATCH_PARTITION",
    ),
    _supported("exclude", "x", "NODES", "nodes not to use", _plain(hostlists.expand_hosts)),
    _supported("nodelist", "w", "NODES", "nodes that must all be used", _plain(hostlists.expand_hosts)),
)  # fmt: skip

_JOB = (
    _supported("job-name", "J", "NAME", "name of the job", _plain(values.job_name),
               variables="SBATCH_JOB_NAME"),
    _supported(
        "time", "t", "TIME", "time limit: minutes, MM:SS, HH:MM:SS, D-HH[:MM[:SS]]; default 24 hours",
        _plain(times.parse_time_limit), variables="SBATCH_TIMELIMIT",
    ),
    _supported(
        "array", "a", "INDICES[%N]", "one task per index, at most N at once", _plain(values.array),
        variables="SBATCH_ARRAY_INX",
    ),
    _supported(
        "dependency", "d", "TYPE:JOB", "start after others: after, afterok, afternotok, afterany, singleton",
        _plain(values.dependencies),
    ),
    _supported("begin", "b", "TIME", "do not start before", _begin),
    _supported("output", "o", "FILE", "file for standard output", _plain(patterns.check_pattern),
               variables="SBATCH_OUTPUT"),
    _supported("error", "e", "FILE", "file for standard error; default: with the output",
               _plain(patterns.check_pattern), variables="SBATCH_ERROR"),
    _supported("input", "i", "FILE", "only /dev/null", _plain(values.only_dev_null),
               variables="SBATCH_INPUT"),
    _supported("open-mode", "", "append|truncate", "what a restart does with the output file",
               _plain(values.open_mode), variables="SBATCH_OPEN_MODE"),
    _supported("signal", "", "[B:]SIGNAL[@SECONDS]", "signal before the time limit and at a notice",
               _plain(values.signal_spec), variables="SBATCH_SIGNAL"),
    _supported("requeue", "", "", "queue the job again after a reclaim (the default)", _flag(True),
               variables="SBATCH_REQUEUE", key="requeue"),
    _supported("no-requeue", "", "", "end the job at a reclaim", _flag(False),
               variables="SBATCH_NO_REQUEUE", key="requeue"),
    _supported("chdir", "D", "FOLDER", "working folder inside /workspace", _plain(values.workspace_folder)),
    _supported("export", "", "NAME[=VALUE],...", "variables to set; nothing else is taken over",
               lambda t, c: values.export(t, c.environment), variables="SBATCH_EXPORT"),
    _supported("comment", "", "TEXT", "free text", _plain(values.plain_text)),
    _supported("account", "A", "LABEL", "cost label on the bill", _plain(values.plain_text),
               variables="SBATCH_ACCOUNT"),
)  # fmt: skip

_CLIENT = (
    _supported("wait", "W", "", "wait for the end; the exit code is the job's", _flag(True),
               variables="SBATCH_WAIT", client=True),
    _supported("parsable", "", "", "print the number only", _flag(True), client=True),
    _supported("test-only", "", "", "check and price the job, do not submit it", _flag(True), client=True),
    _supported("wrap", "", "COMMAND", "submit one command instead of a script", _flag(""), client=True),
    _supported("quiet", "Q", "", "no notices", _flag(True), client=True),
    _supported("verbose", "v", "", "say more", _flag(True), variables="SBATCH_DEBUG", client=True),
    _supported("help", "h", "", "print the options", _flag(True), client=True),
    _supported("usage", "", "", "print a short usage", _flag(True), client=True),
    _supported("version", "V", "", "print the version", _flag(True), client=True),
)  # fmt: skip

_OURS = (
    _supported("tariff", "", "TARIFF", "on_demand (default) or spot", _plain(values.tariff),
               variables="SBATCH_TARIFF"),
    _supported("price-max", "", "YUAN", "bid: at most so much per card-hour; default the list price",
               _plain(values.positive_money), variables="SBATCH_PRICE_MAX"),
    _supported("cost-max", "", "YUAN", "stop before the job has cost more", _plain(values.positive_money),
               variables="SBATCH_COST_MAX"),
    _supported("window", "", "NAME", "run only inside this window of the price book, such as night",
               _plain(values.slug), variables="SBATCH_WINDOW"),
    _supported("defer-until", "", "TIME", "may be put off for a better price until then", _begin),
    _supported("dataset", "", "NAME[@VERSION]", "mount at /dataset/NAME; may be repeated",
               _plain(values.dataset), repeats=True),
    _supported("disk", "", "NAME[:/PATH][:ro]", "a disk of the team at /data/NAME or PATH; may be repeated",
               _plain(values.disk), repeats=True),
    _supported("secret", "", "NAME", "a secret as the file /run/starverse/secrets/NAME; may be repeated",
               _plain(values.secret), repeats=True),
    _supported("image", "", "IMAGE", "run inside this image of `starverse image ls`, shown at /opt/image",
               _plain(values.image), variables="SBATCH_IMAGE"),
    _supported("checkpoint", "", "FOLDER", "folder of /workspace that is saved as a checkpoint by itself",
               _plain(values.checkpoint_folder)),
    _supported("net", "", "none|internet|host", "what the job reaches: nothing, the internet, the host's",
               _plain(values.network), key="net"),
    _supported("network", "", "none|internet|host", "the same as --net", _plain(values.network),
               variables="SBATCH_NETWORK", key="net"),
)  # fmt: skip

_REFUSED = (
    ("recipe", "", "recipes come in a later version"),
    ("reservation", "", "bookings come in a later version"),
    ("hold!", "H", "a job cannot be held; use --begin, or submit it later"),
    ("bb", "", "there are no burst buffers; use --dataset"),
    ("bbf", "", "there are no burst buffers; use --dataset"),
    ("clusters", "M", "there is one cluster"),
    ("container", "", "containers come in a later version"),
    ("container-id", "", "containers come in a later version"),
    ("deadline", "", "use --time and --begin, or --defer-until"),
    ("export-file", "", "name the variables with --export, or source a file in the script"),
    ("gid", "", "a job runs as its team"),
    ("uid", "", "a job runs as its team"),
    ("gpus-per-socket", "", "use --gpus-per-node"),
    ("licenses", "L", "there are no licences to count"),
    ("mincpus", "", "use --cpus-per-task"),
    ("nodefile", "F", "name the nodes with --nodelist"),
    ("ntasks-per-gpu", "", "use --ntasks-per-node or --gpus-per-task"),
    ("ntasks-per-tres", "", "use --ntasks-per-node or --gpus-per-task"),
    ("tres-per-task", "", "use --gpus-per-task and --cpus-per-task"),
    ("reboot!", "", "a node is never restarted for a job"),
)

_IGNORED = (
    ("acctg-freq", "", "SBATCH_ACCTG_FREQ", "usage is measured by the platform"),
    ("batch", "", "SBATCH_BATCH", "the script runs on the first node"),
    ("cluster-constraint", "", "SBATCH_CLUSTER_CONSTRAINT", "there is one cluster"),
    ("contiguous!", "", "", "nodes are chosen by their links"),
    ("core-spec", "S", "SBATCH_CORE_SPEC", "no cores are set aside"),
    ("cores-per-socket", "", "", "CPUs are not placed by socket"),
    ("cpu-freq", "", "SBATCH_CPU_FREQ_REQ", "CPU frequencies are not changed"),
    ("delay-boot", "", "SBATCH_DELAY_BOOT", "nodes are never restarted for a job"),
    ("distribution", "m", "SBATCH_DISTRIBUTION", "tasks are spread evenly, block by block"),
    (
        "exclusive?",
        "",
        "SBATCH_EXCLUSIVE",
        "only the cards granted are yours; ask for all cards of a node instead",
    ),
    ("extra", "", "", "it is not kept; use --comment"),
    ("extra-node-info", "B", "", "CPUs are not placed by socket"),
    ("get-user-env?", "", "SBATCH_GET_USER_ENV", "the environment is not taken over; use --export"),
    ("gpu-bind", "", "SBATCH_GPU_BIND", "every task sees the cards granted"),
    ("gpu-freq", "", "SBATCH_GPU_FREQ", "card frequencies are not changed"),
    ("gres-flags", "", "SBATCH_GRES_FLAGS", "cards are chosen by their links"),
    ("hint", "", "SBATCH_HINT SLURM_HINT", "CPUs are not placed by socket"),
    ("ignore-pbs!", "", "SBATCH_IGNORE_PBS", "#PBS and #BSUB lines are never read"),
    ("kill-on-invalid-dep", "", "", "a job whose dependency can never hold ends, always"),
    ("mail-type", "", "", "no mail is sent; look with `starverse queue` or wait with --wait"),
    ("mail-user", "", "", "no mail is sent; look with `starverse queue` or wait with --wait"),
    ("mcs-label", "", "", "teams never see each other's jobs"),
    ("mem-bind", "", "SBATCH_MEM_BIND", "memory is not placed by socket"),
    ("nice?", "", "", "order follows tariff, fairness and time"),
    ("no-kill?", "k", "SBATCH_NO_KILL", "a gang that loses a node is queued again as a whole"),
    ("ntasks-per-core", "", "", "CPUs are not placed by core"),
    ("ntasks-per-socket", "", "", "CPUs are not placed by socket"),
    ("oom-kill-step", "", "", "running out of memory ends the job"),
    ("overcommit!", "O", "SBATCH_OVERCOMMIT", "each task has its CPUs"),
    ("oversubscribe!", "s", "", "cards are never shared"),
    ("power", "", "SBATCH_POWER", "power is managed by the operator"),
    ("prefer", "", "", "use --constraint for what must hold"),
    ("priority", "", "", "order follows tariff, fairness and time"),
    ("profile", "", "SBATCH_PROFILE", "usage is measured by the platform"),
    ("propagate?", "", "", "limits are those of the job"),
    ("qos", "q", "SBATCH_QOS", "order follows the tariff; use --tariff"),
    ("resv-ports?", "", "", "MASTER_PORT is set for every job"),
    ("sockets-per-node", "", "", "CPUs are not placed by socket"),
    ("spread-job!", "", "SBATCH_SPREAD_JOB", "use --nodes and --gpus-per-node"),
    ("stepmgr!", "", "", "steps are started by srun on the nodes"),
    ("switches", "", "SBATCH_REQ_SWITCH SBATCH_WAIT4SWITCH", "a gang is always placed in one fabric"),
    ("thread-spec", "", "SBATCH_THREAD_SPEC", "no threads are set aside"),
    ("threads-per-core", "", "SBATCH_THREADS_PER_CORE", "CPUs are not placed by core"),
    ("time-min", "", "", "only --time counts"),
    ("tmp", "", "", "/tmp is the job's own and limited by the node"),
    ("tres-bind", "", "", "every task sees the cards granted"),
    ("use-min-nodes!", "", "SBATCH_USE_MIN_NODES", "of a range the smaller number is always taken"),
    ("wait-all-nodes", "", "SBATCH_WAIT_ALL_NODES", "the nodes of a gang always start together"),
    ("wckey", "", "SBATCH_WCKEY", "use --account for a cost label"),
)


def _takes(marked: str) -> tuple[str, Takes]:
    """``name!`` takes nothing, ``name?`` may take a value, ``name`` takes one."""
    kinds = {"!": Takes.NOTHING, "?": Takes.OPTIONAL}
    return marked.rstrip("!?"), kinds.get(marked[-1], Takes.VALUE)


def _refused() -> list[Option]:
    rows = []
    for marked, short, reason in _REFUSED:
        name, takes = _takes(marked)
        variable = {"clusters": ("SBATCH_CLUSTERS",), "reservation": ("SBATCH_RESERVATION",)}.get(name, ())
        rows.append(Option(name, short, takes, Status.REFUSED, reason, variables=variable, key=name))
    return rows


def _ignored() -> list[Option]:
    rows = []
    for marked, short, names, reason in _IGNORED:
        name, takes = _takes(marked)
        option = Option(name, short, takes, Status.IGNORED, reason, variables=tuple(names.split()), key=name)
        rows.append(option)
    return rows


OPTIONS: tuple[Option, ...] = (*_CARDS_AND_NODES, *_JOB, *_OURS, *_CLIENT, *_ignored(), *_refused())

BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}
BY_SHORT: Mapping[str, Option] = {option.short: option for option in OPTIONS if option.short}
BY_VARIABLE: Mapping[str, Option] = {name: option for option in OPTIONS for name in option.variables}

OUR_NAMES = frozenset(option.name for option in _OURS) | {"recipe"}


def find_long(name: str) -> tuple[Option | None, str]:
    """The option of this name or unique beginning, as getopt does; else ``None`` and what would be right.

    Beginnings count among Slurm's own names first, so that scripts written for Slurm read the same here.
    """
    exact = BY_NAME.get(name)
    if exact is not None:
        return exact, ""
    starting = [other for other in BY_NAME if name and other.startswith(name)]
    slurm = [other for other in starting if other not in OUR_NAMES]
    for candidates in (slurm, starting):
        if len(candidates) == 1:
            return BY_NAME[candidates[0]], ""
    if starting:
        return None, "one of " + ", ".join(f"--{other}" for other in sorted(starting))
    near = difflib.get_close_matches(name.lower(), list(BY_NAME), n=3)
    if near:
        return None, "an option of sbatch; did you mean " + " or ".join(f"--{other}" for other in near) + "?"
    return None, "an option of sbatch; `sbatch --help` lists them"
