"""From a script and its options to a job spec, or to everything wrong with them. Pure; never raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo

from starverse.domain.money import Money
from starverse.domain.sbatch.cards import Place, Vocabulary
from starverse.domain.sbatch.choosing import Choice, choose, from_environment
from starverse.domain.sbatch.gangs import combine
from starverse.domain.sbatch.options import OPTIONS, Context
from starverse.domain.sbatch.origins import (
    COMMAND_LINE,
    DEFAULT,
    BadValue,
    IgnoredLine,
    Notice,
    OptionFault,
    Origin,
    Source,
)
from starverse.domain.sbatch.patterns import PatternContext, workspace_file
from starverse.domain.sbatch.scripts import ScriptDirectives, parse_script
from starverse.domain.sbatch.times import format_time_limit
from starverse.domain.sbatch.values import Export, job_name
from starverse.domain.sbatch.words import Given, command_line_words, read_words
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.specs import (
    TIME_LIMIT_SECONDS_DEFAULT,
    ArraySpec,
    Dependencies,
    DiskMount,
    JobSpec,
    Network,
    OpenMode,
    Resources,
    SignalSpec,
)

OUTPUT_DEFAULT = "slurm-%j.out"
OUTPUT_DEFAULT_OF_ARRAY = "slurm-%A_%a.out"
_WRAPPED = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n"


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What a person hands in. ``script`` ``None``: only with ``--wrap``. ``command_line`` holds option words.

    ``arguments`` are the script's own. ``environment`` is the caller's (or the part that matters:
    ``SBATCH_*`` and what ``--export`` names). ``script_name`` gives the default job name.
    """

    script: str | bytes | None
    script_name: str = "sbatch"
    arguments: tuple[str, ...] = ()
    command_line: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EffectiveOption:
    """An option that counts: ``name`` as typed, ``value`` as given (``""``: takes none)."""

    name: str
    value: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What only concerns the command that submits."""

    wait: bool = False
    parsable: bool = False
    test_only: bool = False
    quiet: bool = False
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class Submission:
    """The answer: ``spec`` is ``None`` exactly when there are ``faults``."""

    spec: JobSpec | None
    faults: tuple[OptionFault, ...]
    notices: tuple[Notice, ...]
    options: tuple[EffectiveOption, ...]
    ignored_lines: tuple[IgnoredLine, ...]
    client: ClientOptions


def build(
    request: SubmitRequest, now: datetime, zone: tzinfo, vocabulary: Vocabulary | None = None
) -> Submission:
    """Understand a submission. ``now`` (aware) and ``zone`` serve the times; ``vocabulary`` checks names.

    Every fault is found in one go. O(size of the script).
    """
    context = Context(now, zone, request.environment, vocabulary or Vocabulary())
    typed, faults = read_words(command_line_words(request.command_line))
    directives = _directives(request, typed, faults)
    written, script_faults = read_words(directives.words)
    from_variables, notices = from_environment(request.environment)
    choice = choose([*typed, *from_variables, *written], context)
    choice.faults[:0] = [*faults, *directives.faults, *script_faults]
    choice.notices[:0] = [*directives.notices, *notices]
    resources = combine(choice)
    spec = _spec(request, directives.text, choice, resources)
    return Submission(
        spec=None if choice.faults else spec,
        faults=tuple(sorted(choice.faults, key=_reading_order)),
        notices=tuple(choice.notices),
        options=_effective(choice, spec),
        ignored_lines=directives.ignored,
        client=_client_options(choice),
    )


def _directives(request: SubmitRequest, typed: list[Given], faults: list[OptionFault]) -> ScriptDirectives:
    """The script's, or those of the script that ``--wrap`` makes."""
    wraps = [given for given in typed if given.option.name == "wrap"]
    if not wraps:
        if request.script is None:
            faults.append(OptionFault("script", "", "the path of a batch script, or --wrap", COMMAND_LINE))
            return ScriptDirectives("")
        return parse_script(request.script)
    if request.script is not None or request.arguments:
        faults.append(OptionFault("--wrap", wraps[-1].value, "no script beside --wrap", COMMAND_LINE))
    if not wraps[-1].value.strip():
        faults.append(OptionFault("--wrap", wraps[-1].value, "a command", COMMAND_LINE))
    return parse_script(_WRAPPED.format(command=wraps[-1].value))


def _spec(request: SubmitRequest, script: str, choice: Choice, resources: Resources | None) -> JobSpec | None:
    """Every option into its field; faults of combinations are added to ``choice``."""
    array = choice.value("array", ArraySpec)
    export = choice.value("export", Export) or Export()
    for text in export.notices:
        choice.notices.append(Notice(text, choice.origin("export")))
    requeue = choice.value("no-requeue", bool)
    chdir = choice.value("chdir", str) or "."
    output_default = OUTPUT_DEFAULT_OF_ARRAY if array else OUTPUT_DEFAULT
    spec = JobSpec(
        name=choice.value("job-name", str) or _default_name(request, choice),
        script=script,
        arguments=request.arguments,
        resources=resources or Resources(),
        tariff=_tariff(choice),
        price_max=choice.value("price-max", Money),
        cost_max=choice.value("cost-max", Money),
        window=choice.value("window", str),
        time_limit_seconds=choice.value("time", int) or TIME_LIMIT_SECONDS_DEFAULT,
        begin=choice.value("begin", datetime),
        defer_until=choice.value("defer-until", datetime),
        dependencies=choice.value("dependency", Dependencies) or Dependencies(),
        array=array,
        output=choice.value("output", str) or output_default,
        error=choice.value("error", str),
        open_mode=choice.value("open-mode", OpenMode) or OpenMode.APPEND,
        signal=choice.value("signal", SignalSpec),
        requeue=True if requeue is None else requeue,
        chdir=chdir,
        environment=export.variables,
        comment=choice.value("comment", str) or None,
        cost_label=choice.value("account", str) or None,
        datasets=choice.values("dataset", str),
        secret_names=tuple(dict.fromkeys(choice.values("secret", str))),
        checkpoint_folder=choice.value("checkpoint", str),
        image=choice.value("image", str),
        disks=choice.values("disk", DiskMount),
        network=choice.value("net", Network) or choice.value("network", Network) or Network.NONE,
    )
    _check_together(spec, choice)
    return spec


def _default_name(request: SubmitRequest, choice: Choice) -> str:
    """Slurm's: the script's base name, ``wrap`` for ``--wrap``."""
    if choice.chosen.get("wrap"):
        return "wrap"
    base = request.script_name.rstrip("/").rpartition("/")[2]
    try:
        return job_name(base)
    except BadValue:
        return "sbatch"


def _tariff(choice: Choice) -> Tariff:
    tariff = choice.value("tariff", Tariff)
    place = choice.value("partition", Place)
    if place is not None and place.tariff is not None:
        if tariff is not None and tariff != place.tariff:
            choice.fault("tariff", f"the tariff of the partition, {place.tariff}")
        tariff = Tariff(place.tariff)
    return tariff or Tariff.ON_DEMAND


def _check_together(spec: JobSpec, choice: Choice) -> None:
    """Rules between options that are each right by themselves."""
    if spec.begin and spec.defer_until and spec.defer_until < spec.begin:
        choice.fault("defer-until", "a time after --begin")
    signal = spec.signal
    if signal is not None and signal.seconds_before_end >= spec.time_limit_seconds:
        text = f"--signal comes {signal.seconds_before_end} s before the end: at the start of this job"
        choice.notices.append(Notice(text, choice.origin("signal")))
    index = None if spec.array is None else spec.array.indices[0]
    context = PatternContext(1, spec.name, array_number=None if index is None else 1, array_index=index)
    for name, pattern in (("output", spec.output), ("error", spec.error)):
        if pattern is None:
            continue
        try:
            workspace_file(pattern, context, spec.chdir)
        except BadValue as error:
            choice.fault(name, error.expected)


def _effective(choice: Choice, spec: JobSpec | None) -> tuple[EffectiveOption, ...]:
    """What counts, in the order of the table, then the defaults that cost money or surprise people."""
    found: list[EffectiveOption] = []
    for option in OPTIONS:
        for one in choice.chosen.get(option.key, []):
            if one.given.option is option:
                found.append(EffectiveOption(option.typed, one.given.value, one.given.origin))
    if spec is None:
        return tuple(found)
    resources = spec.resources
    defaults = {
        "job-name": spec.name,
        "nodes": str(resources.nodes),
        "ntasks": str(resources.tasks),
        "cpus-per-task": str(resources.cpus_per_task),
        "mem": f"{resources.memory_bytes // 1024**2}M",
        "time": format_time_limit(spec.time_limit_seconds),
        "output": spec.output,
        "open-mode": spec.open_mode.value,
        "requeue": "",
        "export": "NONE",
        "tariff": spec.tariff.value,
        "net": spec.network.value,
    }
    for name, value in defaults.items():
        if not choice.chosen.get(name):
            found.append(EffectiveOption(f"--{name}", value, DEFAULT))
    return tuple(found)


def _reading_order(fault: OptionFault) -> tuple[int, int]:
    return list(Source).index(fault.origin.source), fault.origin.line or 0


def _client_options(choice: Choice) -> ClientOptions:
    def given(name: str) -> bool:
        return bool(choice.chosen.get(name))

    return ClientOptions(
        wait=given("wait"),
        parsable=given("parsable"),
        test_only=given("test-only"),
        quiet=given("quiet"),
        verbose=given("verbose"),
    )
