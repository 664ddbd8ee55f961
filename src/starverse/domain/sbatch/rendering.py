"""A job spec back to a batch script: reading it again gives the same spec (sbatch round trip)."""

from __future__ import annotations

import re

from starverse.domain.money import Money
from starverse.domain.sbatch.hostlists import expand_hosts, fold_hosts
from starverse.domain.sbatch.scripts import MAGIC
from starverse.domain.sbatch.submission import OUTPUT_DEFAULT, OUTPUT_DEFAULT_OF_ARRAY
from starverse.domain.sbatch.times import format_time_limit
from starverse.domain.timespan import format_instant
from starverse.domain.workloads.specs import (
    ArraySpec,
    Dependencies,
    Dependency,
    DiskMount,
    JobSpec,
    Network,
    Resources,
    SignalSpec,
)

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]?^~{}-]*", re.ASCII)


def render(spec: JobSpec) -> str:
    """The script with a directive for each part of the spec; the directives it had are removed.

    ``arguments`` are no part of a script. Raises ``ValueError`` for what a directive cannot say: a line
    break in an exported value, memory that is not whole KiB.
    """
    first, _, rest = spec.script.partition("\n")
    directives = [f"{MAGIC} {_quoted(word)}" for word in _words(spec)]
    return "\n".join([first, *directives, _without_directives(rest)])


def render_indices(indices: tuple[int, ...]) -> str:
    """``0-3,7,9`` from ascending indices, as squeue and ``--array`` write them."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _words(spec: JobSpec) -> list[str]:
    default = JobSpec(name="", script="")
    output_default = OUTPUT_DEFAULT_OF_ARRAY if spec.array else OUTPUT_DEFAULT
    maybe: list[tuple[str, str | None]] = [
        ("job-name", spec.name),
        *_resource_words(spec.resources),
        ("tariff", spec.tariff.value if spec.tariff is not default.tariff else None),
        ("price-max", _money(spec.price_max)),
        ("cost-max", _money(spec.cost_max)),
        ("window", spec.window),
        ("time", format_time_limit(spec.time_limit_seconds)),
        ("begin", None if spec.begin is None else format_instant(spec.begin)),
        ("defer-until", None if spec.defer_until is None else format_instant(spec.defer_until)),
        ("dependency", _dependencies(spec.dependencies)),
        ("array", _array(spec.array)),
        ("output", spec.output if spec.output != output_default else None),
        ("error", spec.error),
        ("open-mode", spec.open_mode.value if spec.open_mode is not default.open_mode else None),
        ("signal", _signal(spec.signal)),
        ("chdir", spec.chdir if spec.chdir != default.chdir else None),
        ("export", _export(spec.environment)),
        ("comment", spec.comment),
        ("account", spec.cost_label),
        *(("dataset", name) for name in spec.datasets),
        *(("disk", _disk(mount)) for mount in spec.disks),
        *(("secret", name) for name in spec.secret_names),
        ("image", spec.image),
        ("checkpoint", spec.checkpoint_folder),
        ("net", spec.network.value if spec.network is not Network.NONE else None),
    ]
    words = [f"--{name}={value}" for name, value in maybe if value is not None]
    return words if spec.requeue else [*words, "--no-requeue"]


def _disk(mount: DiskMount) -> str:
    target = f":{mount.target}" if mount.target else ""
    return f"{mount.disk_id}{target}{':ro' if mount.read_only else ''}"


def _resource_words(resources: Resources) -> list[tuple[str, str | None]]:
    features = []
    if resources.fabric is not None:
        features.append(resources.fabric)
    if resources.zone is not None:
        features.append(f"zone:{resources.zone}")
    cards: str | None = None
    if resources.cards_per_node:
        model = f"{resources.card_model}:" if resources.card_model else ""
        cards = f"gpu:{model}{resources.cards_per_node}"
    return [
        ("gres", cards),
        ("nodes", str(resources.nodes)),
        ("ntasks", str(resources.tasks)),
        ("ntasks-per-node", str(resources.tasks_per_node)),
        ("cpus-per-task", str(resources.cpus_per_task)),
        ("mem", _memory(resources.memory_bytes_per_node)),
        ("constraint", "&".join(features) or None),
        ("exclude", _hosts(resources.exclude)),
        ("nodelist", _hosts(resources.nodelist)),
    ]


def _hosts(names: tuple[str, ...]) -> str | None:
    """Folded where that keeps their order."""
    if not names:
        return None
    folded = fold_hosts(names)
    return folded if expand_hosts(folded) == names else ",".join(names)


def _memory(size: int | None) -> str | None:
    if size is None:
        return None
    if size % 1024:
        raise ValueError(f"{size} bytes of memory are not whole KiB")
    return f"{size // 1024}K"


def _money(amount: Money | None) -> str | None:
    return None if amount is None else amount.decimal()


def _array(array: ArraySpec | None) -> str | None:
    if array is None:
        return None
    limit = f"%{array.running_max}" if array.running_max is not None else ""
    return render_indices(array.indices) + limit


def _dependencies(dependencies: Dependencies) -> str | None:
    if not dependencies.conditions:
        return None
    return ("?" if dependencies.any_is_enough else ",").join(map(_dependency, dependencies.conditions))


def _dependency(one: Dependency) -> str:
    if one.job_number is None:
        return one.kind.value
    index = f"_{one.array_index}" if one.array_index is not None else ""
    delay = f"+{one.delay_minutes}" if one.delay_minutes else ""
    return f"{one.kind.value}:{one.job_number}{index}{delay}"


def _signal(signal: SignalSpec | None) -> str | None:
    if signal is None:
        return None
    return f"{'B:' if signal.to_batch_shell else ''}{signal.name}@{signal.seconds_before_end}"


def _export(environment: tuple[tuple[str, str], ...]) -> str | None:
    """``NAME='value'``; a quote inside a value is closed, written in the other quotes, and opened again."""
    if not environment:
        return None
    pairs = []
    for name, value in environment:
        inner = value.replace("'", "'\"'\"'")
        pairs.append(f"{name}='{inner}'")
    return ",".join(pairs)


def _quoted(word: str) -> str:
    """As Slurm reads it: in double quotes, with a backslash before ``"`` and ``\\``."""
    if "\n" in word or "\0" in word:
        raise ValueError(f"a directive cannot hold a line break: {word[:40]!r}")
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _without_directives(rest: str) -> str:
    """The script without the directives that count; those after the first command are comments and stay."""
    lines = rest.split("\n")
    kept: list[str] = []
    for index, line in enumerate(lines):
        bare = line.strip(" \t\v\f\r")
        if bare and not bare.startswith("#"):
            return "\n".join([*kept, *lines[index:]])
        if not line.startswith(MAGIC):
            kept.append(line)
    return "\n".join(kept)
