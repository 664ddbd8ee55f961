"""Script, environment and command line become one spec, or every fault by name and place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from starverse.domain.money import Money
from starverse.domain.sbatch.card_models import ModelChoices, resolve_model
from starverse.domain.sbatch.cards import Vocabulary
from starverse.domain.sbatch.options import BY_NAME, BY_SHORT, OPTIONS, Status, find_long
from starverse.domain.sbatch.submission import Submission, SubmitRequest, build
from starverse.domain.sbatch.words import split_command_line
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.specs import JobSpec, Network, OpenMode, Resources, SignalSpec

NOW = datetime(2026, 3, 10, 2, 0, tzinfo=UTC)
GIB = 1024**3


def submit(
    directives: str = "", *typed: str, environment: Mapping[str, str] | None = None, name: str = "train.sh"
) -> Submission:
    script = f"#!/bin/bash\n{directives}\nhostname\n"
    return build(
        SubmitRequest(script, name, command_line=typed, environment=environment or {}),
        NOW,
        UTC,
        Vocabulary(models=("rtx4090", "a100-40g"), zones=("bj1",)),
    )


def spec_of(directives: str = "", *typed: str, environment: Mapping[str, str] | None = None) -> JobSpec:
    found = submit(directives, *typed, environment=environment)
    assert found.faults == ()
    assert found.spec is not None
    return found.spec


def test_a_bare_script_gets_the_defaults() -> None:
    spec = spec_of()
    assert (spec.name, spec.time_limit_seconds, spec.output) == ("train.sh", 86_400, "slurm-%j.out")
    assert spec.resources == Resources()
    assert (spec.tariff, spec.requeue, spec.network) == (Tariff.ON_DEMAND, True, Network.NONE)


def test_every_field_can_be_set_by_a_directive() -> None:
    spec = spec_of(
        "#SBATCH -J run -t 2:00:00 -a 0-3%2 -d afterok:7 --gres=gpu:rtx4090:2 -N 2 --ntasks-per-node=2 -c 4\n"
        "#SBATCH --mem=8G -o out/%x-%j.txt -e err.txt --open-mode=truncate --signal=B:USR1@90 --no-requeue\n"
        "#SBATCH -C ib\\&bj1 -x gpu003 -w gpu[001-002] -D code --export=A=1 --comment=hi\n"
        "#SBATCH -b 2026-03-11 -A lab\n"
        "#SBATCH --tariff=spot --price-max=1.5 --cost-max=20 --window=night --defer-until=2026-03-12\n"
        "#SBATCH --dataset=digits --dataset=cifar10@v2 --checkpoint=ck --net=host\n"
    )
    assert spec.resources == Resources(
        "rtx4090", 2, 2, 4, 2, 4, 8 * GIB, "ib", "bj1", ("gpu003",), ("gpu001", "gpu002")
    )
    assert (spec.tariff, spec.price_max, spec.cost_max) == (Tariff.SPOT, Money(1_500_000), Money(20_000_000))
    assert (spec.window, spec.datasets, spec.checkpoint_folder) == ("night", ("digits", "cifar10@v2"), "ck")
    assert (spec.open_mode, spec.signal) == (OpenMode.TRUNCATE, SignalSpec("USR1", 90, True))
    assert (spec.chdir, spec.environment, spec.comment, spec.cost_label) == (
        "code",
        (("A", "1"),),
        "hi",
        "lab",
    )
    assert (spec.requeue, spec.network) == (False, Network.HOST)
    assert (spec.begin, spec.defer_until) == (
        datetime(2026, 3, 11, tzinfo=UTC),
        datetime(2026, 3, 12, tzinfo=UTC),
    )


def test_command_line_beats_environment_beats_script() -> None:
    environment = {"SBATCH_TIMELIMIT": "20", "SBATCH_JOB_NAME": "from-env"}
    found = submit("#SBATCH -t 10 -J from-script --comment=kept", "--time=30", environment=environment)
    assert found.spec is not None
    assert (found.spec.time_limit_seconds, found.spec.name, found.spec.comment) == (1800, "from-env", "kept")
    origins = {option.name: str(option.origin) for option in found.options}
    assert origins["--time"] == "command line"
    assert origins["--job-name"] == "SBATCH_JOB_NAME"
    assert origins["--comment"] == "script line 2"
    assert origins["--tariff"] == "default"
    assert "script line 2: --time=10 is overridden by --time=30 (command line)" in map(str, found.notices)


def test_the_same_said_twice_overrides_nothing() -> None:
    twice = submit("#SBATCH --dataset=digits -t 30", "--dataset=digits", "--time=30")
    assert [str(notice) for notice in twice.notices] == []
    other = submit("#SBATCH --dataset=digits", "--dataset=faces")
    assert "script line 2: --dataset=digits is overridden by --dataset=faces (command line)" in map(
        str, other.notices
    )


def test_the_last_of_one_source_wins() -> None:
    assert spec_of("#SBATCH --requeue\n#SBATCH --no-requeue").requeue is False
    assert spec_of("#SBATCH --no-requeue\n#SBATCH --requeue").requeue is True


def test_memory_of_a_stronger_source_replaces_another_kind_of_memory() -> None:
    assert spec_of("#SBATCH --mem=1G", "--mem-per-cpu=2G").resources.memory_bytes_per_node == 2 * GIB


@pytest.mark.parametrize("value", ["", "yes", "1"])
def test_flags_in_the_environment(value: str) -> None:
    assert spec_of(environment={"SBATCH_NO_REQUEUE": value}).requeue is False


def test_flags_switched_off_and_unknown_variables() -> None:
    found = submit(environment={"SBATCH_NO_REQUEUE": "no", "SBATCH_FANTASY": "1", "HOME": "/root"})
    assert found.spec is not None
    assert found.spec.requeue is True
    assert [str(notice) for notice in found.notices] == [
        "SBATCH_FANTASY: no option has this environment variable; ignored"
    ]


SHAPES = [
    ("one node", "--gres=gpu:4", (1, 1, 1, 4)),
    ("cards in all over nodes", "-N 2 -G 8", (2, 2, 1, 4)),
    ("cards per node", "-N 4 --gpus-per-node=rtx4090:8", (4, 4, 1, 8)),
    ("cards in all and per node give the nodes", "-G 16 --gpus-per-node=8", (2, 2, 1, 8)),
    ("cards per task", "-n 4 --gpus-per-task=2", (1, 4, 4, 8)),
    ("cards per task over nodes", "-N 2 --ntasks-per-node=4 --gpus-per-task=1", (2, 8, 4, 4)),
    ("tasks from cards", "-G 8 --gpus-per-task=2", (1, 4, 4, 8)),
    ("nodes from tasks", "-n 7 --ntasks-per-node=2", (4, 7, 2, 0)),
    ("nodes from a list", "-w gpu[001-003]", (3, 3, 1, 0)),
    ("the same number twice", "--gres=gpu:2 --gpus=2", (1, 1, 1, 2)),
]


@pytest.mark.parametrize(("options", "expected"), [c[1:] for c in SHAPES], ids=[c[0] for c in SHAPES])
def test_nodes_tasks_and_cards_fit_each_other(options: str, expected: tuple[int, int, int, int]) -> None:
    resources = spec_of(f"#SBATCH {options}").resources
    shape = (resources.nodes, resources.tasks, resources.tasks_per_node, resources.cards_per_node)
    assert shape == expected


def test_cpus_and_memory_follow_cards() -> None:
    resources = spec_of("#SBATCH --gres=gpu:4 --cpus-per-gpu=3 --mem-per-gpu=10G -n 2").resources
    assert (resources.cpus_per_task, resources.memory_bytes_per_node) == (6, 40 * GIB)


CONTRADICTIONS = [
    ("cards do not divide", "-N 3 --gpus=8", "--gpus", "a multiple of the 3 nodes"),
    ("cards per node and in all", "-N 2 --gpus=8 --gpus-per-node=2", "--gpus", "--gpus-per-node makes 2"),
    ("gres and gpus", "-N 1 --gres=gpu:2 --gpus=4", "--gpus", "--gres makes 2 on each node, --gpus makes 4"),
    ("two models", "--gres=gpu:rtx4090:2 --gpus=a100-40g:2", "--gpus", "one model for the whole job"),
    ("model and constraint", "--gres=gpu:rtx4090:2 -C model:a100-40g", "--constraint", "one model"),
    ("partition and constraint", "-p ib -C eth", "--partition", "one fabric"),
    ("model without cards", "-C rtx4090", "--constraint", "a number of cards as well"),
    ("more tasks than fit", "-N 2 -n 8 --ntasks-per-node=2", "--ntasks", "at most 4"),
    ("fewer tasks than nodes", "-N 4 -n 2", "--ntasks", "at least one task"),
    ("uneven tasks with cards", "-N 2 -n 3 --gpus-per-task=1", "--gpus-per-task", "spread evenly"),
    ("two kinds of memory", "--mem=1G --mem-per-cpu=1G", "--mem", "only one of"),
    ("memory per card without cards", "--mem-per-gpu=1G", "--mem-per-gpu", "cards to count by"),
    ("CPUs per card without cards", "--cpus-per-gpu=1", "--cpus-per-gpu", "cards to count by"),
    ("CPUs per card and per task", "--gres=gpu:1 --cpus-per-gpu=1 -c 2", "--cpus-per-gpu", "only one of"),
    ("more nodes named than asked", "-N 1 -w a,b", "--nodelist", "at most 1"),
    ("a node wanted and not wanted", "-w a -x a,b", "--exclude", "no node that --nodelist names: a"),
    ("tariff and partition", "-p spot --tariff=on_demand", "--tariff", "the tariff of the partition"),
    (
        "a tariff of a later version",
        "--tariff=no_gpu --gres=gpu:1",
        "--tariff",
        "on_demand or spot for a job",
    ),
    ("a tariff there is not", "--tariff=foo --gres=gpu:1", "--tariff", "on_demand or spot"),
    (
        "put off before the beginning",
        "-b 2026-04-01 --defer-until=2026-03-20",
        "--defer-until",
        "after --begin",
    ),
    ("output leaves through chdir", "-D sub -o ../../x", "--output", "inside /workspace"),
]


@pytest.mark.parametrize(
    ("options", "option", "expected"), [c[1:] for c in CONTRADICTIONS], ids=[c[0] for c in CONTRADICTIONS]
)
def test_a_contradiction_is_named(options: str, option: str, expected: str) -> None:
    found = submit(f"#SBATCH {options}")
    assert found.spec is None
    assert any(fault.option == option and expected in fault.expected for fault in found.faults), found.faults


BAD_WORDS = [
    ("a value with a space", "--job-name=two words", "words", "quote a value with spaces"),
    ("an en dash", "\u2013\u2013nodes=2", "\u2013\u2013nodes=2", "plain dashes"),
    ("one dash too few", "-gres=gpu:2", "-gres=gpu:2", "two dashes"),
    ("unknown", "--gpu=2", "--gpu", "--gpu-bind, --gpu-freq, --gpus"),
    ("misspelt", "--job-nmae=x", "--job-nmae", "--job-name"),
    ("unknown letter", "-Z 3", "-Z", "an option of sbatch"),
    ("a value for a flag", "--hold=yes", "--hold", "without a value"),
    ("no value at the end", "--time", "--time", "a value"),
    ("an option where a value belongs", "--time --nodes=2", "--time", "a value"),
    ("an equals sign after a letter", "-n=4", "-n", "no = after a single letter"),
    ("bare dash", "-n 4 -", "-", "an option"),
    ("refused by the table", "--recipe=retry", "--recipe", "recipes come in a later version"),
    ("refused recipe", "--recipe=oom", "--recipe", "recipes come in a later version"),
    ("held", "-H", "--hold", "cannot be held"),
    ("empty gres", "--gres=", "--gres", "it is empty"),
]


@pytest.mark.parametrize(
    ("words", "option", "expected"), [c[1:] for c in BAD_WORDS], ids=[c[0] for c in BAD_WORDS]
)
def test_what_cannot_be_read_is_named_with_its_line(words: str, option: str, expected: str) -> None:
    found = submit(f"#SBATCH {words}")
    assert found.spec is None
    fault = next(fault for fault in found.faults if fault.option == option)
    assert expected in fault.expected
    assert str(fault.origin) == "script line 2"
    assert fault.field_fault().field == f"{option} (script line 2)"


def test_a_value_on_the_next_line_is_not_taken() -> None:
    found = submit("#SBATCH --ntasks\n#SBATCH 4")
    assert [fault.option for fault in found.faults] == ["--ntasks", "4"]


def test_every_fault_is_found_in_one_go() -> None:
    found = submit("#SBATCH -t x\n#SBATCH --mem=y", "--gres=z", environment={"SBATCH_SIGNAL": "?"})
    assert [(fault.option, str(fault.origin)) for fault in found.faults] == [
        ("--gres", "command line"),
        ("--signal", "SBATCH_SIGNAL"),
        ("--time", "script line 2"),
        ("--mem", "script line 3"),
    ]


def test_ignored_options_are_named_and_their_values_not_read() -> None:
    found = submit(
        "#SBATCH --mail-type=ALL --exclusive -q high", environment={"SBATCH_HINT": "nomultithread"}
    )
    assert found.spec is not None
    texts = [str(notice) for notice in found.notices]
    assert len(texts) == 4
    assert any(text.startswith("SBATCH_HINT: --hint=nomultithread is ignored") for text in texts)
    assert any("--exclusive is ignored: only the cards granted are yours" in text for text in texts)


def test_a_range_of_nodes_takes_the_smaller_number_and_says_so() -> None:
    found = submit("#SBATCH -N 2-4")
    assert found.spec is not None
    assert found.spec.resources.nodes == 2
    assert "a fixed size, 2 is taken" in str(found.notices[0])


def test_wrap_makes_a_script() -> None:
    found = build(SubmitRequest(None, command_line=("--wrap=echo $X", "-n2")), NOW, UTC)
    assert found.spec is not None
    assert (found.spec.name, found.spec.resources.tasks) == ("wrap", 2)
    assert found.spec.script == "#!/bin/sh\n# This script was created by sbatch --wrap.\n\necho $X\n"


@pytest.mark.parametrize(
    ("request_", "option"),
    [
        (SubmitRequest(None), "script"),
        (SubmitRequest("#!/bin/sh\n", command_line=("--wrap=x",)), "--wrap"),
        (SubmitRequest(None, command_line=("--wrap= ",)), "--wrap"),
    ],
    ids=["nothing to run", "script and wrap", "empty wrap"],
)
def test_wrap_or_a_script(request_: SubmitRequest, option: str) -> None:
    assert option in [fault.option for fault in build(request_, NOW, UTC).faults]


def test_arrays_have_their_own_output_name() -> None:
    assert spec_of("#SBATCH -a 0-1").output == "slurm-%A_%a.out"
    assert spec_of("#SBATCH -a 0-1 -o x").output == "x"


def test_client_options_do_not_reach_the_spec() -> None:
    found = submit("", "--parsable", "-W", "--test-only")
    assert (found.client.parsable, found.client.wait, found.client.test_only) == (True, True, True)
    assert found.spec == spec_of()


def test_beginnings_of_names_as_getopt_takes_them() -> None:
    assert spec_of("#SBATCH --job=x --cpus-per-t=3").resources.cpus_per_task == 3
    option, expected = find_long("ntas")
    assert option is None
    assert "--ntasks, --ntasks-per-core" in expected


def test_the_script_is_found_among_options() -> None:
    line = split_command_line(
        ["-n", "4", "--mem", "4G", "--requeue", "-Wt5", "--exclusive", "run.sh", "-x", "a"]
    )
    assert line.script == "run.sh"
    assert line.option_words == ("-n", "4", "--mem", "4G", "--requeue", "-Wt5", "--exclusive")
    assert line.arguments == ("-x", "a")
    assert split_command_line(["-n4"]).script is None
    assert split_command_line(["-n4", "--", "run.sh", "x"]).arguments == ("x",)


def test_the_table_is_sound() -> None:
    assert len(BY_NAME) == len(OPTIONS)
    assert len(BY_SHORT) == len([option for option in OPTIONS if option.short])
    for option in OPTIONS:
        assert option.text, option.name
        assert (option.parse is not None) == (option.status is Status.SUPPORTED), option.name


SLURM_OPTIONS = """
account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint
container container-id contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline
delay-boot dependency distribution error exclude exclusive export export-file extra extra-node-info
get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags help
hint hold ignore-pbs input job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem
mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-kill no-requeue nodefile nodelist nodes ntasks
ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket oom-kill-step open-mode output
overcommit oversubscribe parsable partition power prefer priority profile propagate qos quiet reboot
requeue reservation resv-ports signal sockets-per-node spread-job stepmgr switches test-only thread-spec
threads-per-core time time-min tmp tres-bind tres-per-task uid usage use-min-nodes verbose version wait
wait-all-nodes wckey wrap
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", SLURM_OPTIONS)
def test_every_option_of_slurm_is_classified(name: str) -> None:
    assert name in BY_NAME


LIST_PRICES = {"rtx4090": Fraction(1_660_000), "a100-40g": Fraction(3_450_000)}


def test_a_model_is_asked_for_where_prices_differ() -> None:
    found = resolve_model(spec_of("#SBATCH --gres=gpu:2"), LIST_PRICES)
    assert isinstance(found, ModelChoices)
    assert str(found.fault()) == (
        "--gres: 'gpu:2'; expected a model, because prices differ: gpu:rtx4090:2 (CNY 1.66 per card-hour)"
        " or gpu:a100-40g:2 (CNY 3.45 per card-hour)"
    )


def test_a_model_is_settled_where_there_is_one_or_all_cost_the_same() -> None:
    spec = spec_of("#SBATCH --gres=gpu:2")
    single = resolve_model(spec, {"rtx4090": Fraction(1)})
    assert isinstance(single, JobSpec)
    assert single.resources.card_model == "rtx4090"
    assert resolve_model(spec, {"a": Fraction(1), "b": Fraction(1)}) == spec
    assert resolve_model(spec_of(), {}) == spec_of()
    named = spec_of("#SBATCH --gres=gpu:rtx4090:2")
    assert resolve_model(named, LIST_PRICES) == named


def test_a_model_that_is_not_sold_is_refused_with_the_nearest() -> None:
    found = resolve_model(spec_of("#SBATCH --gres=gpu:a100-40g:1"), {"a100-80g": Fraction(9)})
    assert isinstance(found, ModelChoices)
    assert "gpu:a100-80g:1" in found.fault().expected
    nothing = resolve_model(spec_of("#SBATCH --gres=gpu:1"), {})
    assert isinstance(nothing, ModelChoices)
    assert "there are none here" in nothing.fault().expected
