"""sbatch, squeue, scancel, sinfo, sacct, srun, salloc: output and exit codes as Slurm's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.testing import api_examples as examples
from starverse.testing.command_lines import CommandLine
from starverse.testing.fake_api import FakeApi, Reply

ME = {"account": {"email": "wang@example.org"}, "team": {"name": "vision"}, "teams": [], "scope": "account"}


class AnyFolder(FakeApi):
    """Has every folder already."""

    def answer(self, seen: Any) -> Reply:
        if seen.path.startswith("/folders/"):
            self.seen.append(seen)
            return Reply(200)
        return super().answer(seen)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with AnyFolder() as fake:
        fake.on("GET", "/me", ME)
        fake.on("GET", "/jobs", {"items": examples.jobs(), "next_cursor": None})
        yield fake


@pytest.fixture
def line(api: FakeApi, tmp_path: Path) -> CommandLine:
    (tmp_path / "train.sh").write_text("#!/bin/sh\n#SBATCH --export=LANGUAGE\n")
    return CommandLine(
        api.url, tmp_path, {"USER": "wang", "LANGUAGE": "zh", "SBATCH_TIMELIMIT": "5", "TZ": "Asia/Shanghai"}
    )


def accept(api: FakeApi, number: str = "12", **changes: Any) -> None:
    answer = {"job": examples.job(number, **changes), "jobs_count": 1, "notices": [], "price": None}
    api.on("POST", "/jobs", Reply(201, answer))


def test_sbatch_says_what_slurm_says(api: FakeApi, line: CommandLine) -> None:
    accept(api)
    ran = line.shim("sbatch", "-N1", "train.sh", "-x", "--wait")
    assert (ran.code, ran.out, ran.err) == (0, "Submitted batch job 12\n", "")
    body = api.requests("POST", "/jobs")[0].json
    assert (body["argv"], body["arguments"]) == (["-N1"], ["-x", "--wait"])
    assert body["environment"] == {"SBATCH_TIMELIMIT": "5", "LANGUAGE": "zh", "TZ": "Asia/Shanghai"}


def test_sbatch_parsable_prints_the_arrays_own_number(api: FakeApi, line: CommandLine) -> None:
    accept(api, "15_0", array_number=15, array_index=0)
    assert line.shim("sbatch", "--parsable", "-a0-3", "train.sh").out == "15\n"


def test_sbatch_reads_stdin_and_wrap(api: FakeApi, line: CommandLine) -> None:
    accept(api)
    assert line.shim("sbatch", stdin="#!/bin/sh\nid\n").code == 0
    assert line.shim("sbatch", "--wrap=id").code == 0
    scripts = [seen.json["script"] for seen in api.requests("POST", "/jobs")]
    assert scripts[0] == "#!/bin/sh\nid\n"
    assert scripts[1].endswith("\nid\n")


def test_sbatch_wait_returns_the_jobs_code(api: FakeApi, line: CommandLine) -> None:
    accept(api)
    api.on("GET", "/jobs/12", examples.job(), examples.job(state="failed", exit_code=7))
    assert line.shim("sbatch", "-W", "train.sh").code == 7


def test_sbatch_test_only_submits_nothing(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/jobs", examples.lint())
    ran = line.shim("sbatch", "--test-only", "train.sh")
    assert (ran.code, ran.out) == (0, "")
    assert "would be accepted; price: CNY 0.996 per hour" in ran.err
    assert api.requests("POST", "/jobs")[0].json["lint"] is True


SBATCH_ERRORS = {
    "no such file": (["none.sh"], "", "sbatch: error: Unable to open file none.sh\n"),
    "empty": ([], "  \n", "sbatch: error: Batch script is empty!\n"),
    "wrap and script": (
        ["--wrap=id", "train.sh"],
        "",
        "sbatch: error: Script arguments not permitted with --wrap option\n",
    ),
}


@pytest.mark.parametrize(("words", "stdin", "said"), SBATCH_ERRORS.values(), ids=SBATCH_ERRORS.keys())
def test_sbatch_errors_are_1(words: list[str], stdin: str, said: str, line: CommandLine) -> None:
    ran = line.shim("sbatch", *words, stdin=stdin)
    assert (ran.code, ran.out, ran.err) == (1, "", said)


def test_a_refusal_of_the_platform_is_printed_line_by_line(api: FakeApi, line: CommandLine) -> None:
    faults = [
        {"field": "--gres", "value": "gpu:h100", "expected": "gpu:rtx4090"},
        {"field": "--time", "value": "x", "expected": "minutes"},
    ]
    problem = {"code": "invalid", "detail": "two", "hint": "see `starverse offers`", "faults": faults}
    api.on("POST", "/jobs", Reply(422, problem))
    ran = line.shim("sbatch", "train.sh")
    assert ran.code == 1
    assert ran.err == (
        "sbatch: error: --gres: 'gpu:h100'; expected gpu:rtx4090\n"
        "sbatch: error: --time: 'x'; expected minutes\n"
        "sbatch: hint: see `starverse offers`\n"
    )


def test_squeue_filters(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/jobs/12", examples.job())
    api.on("GET", "/jobs/15", examples.job("15"))
    for words, expected in (
        ("-u wang", "14 15_2 15_3 12"),
        ("--me -t R", "12"),
        ("-u li", ""),
        ("-n sweep,train", "15_2 15_3 12"),
        ("-t PD", "14 15_2 15_3"),
        ("-j 12,15_[3]", "15_3 12"),
        ("-w node-1 -p all", "12"),
        ("-A vision -t F,CD", "11"),
    ):
        ran = line.shim("squeue", "-h", "-r", "-o", "%i", *words.split())
        assert (ran.code, ran.out.split()) == (0, expected.split()), words


SQUEUE_ERRORS = {
    "no such job": (["-j", "99"], "slurm_load_jobs error: Invalid job id specified\n"),
    "no such option": (["--colour"], "squeue: unrecognized option '--colour'\nTry"),
    "no such letter": (["-Z"], "squeue: invalid option -- 'Z'\nTry"),
    "bad state": (["-t", "SLEEPY"], "squeue: error: Invalid job state specified: SLEEPY"),
    "bad id": (["-j", "x"], "squeue: error: Invalid job id: x"),
    "no value": (["-u"], "squeue: option"),
}


@pytest.mark.parametrize(("words", "said"), SQUEUE_ERRORS.values(), ids=SQUEUE_ERRORS.keys())
def test_squeue_errors_are_1(words: list[str], said: str, line: CommandLine) -> None:
    ran = line.shim("squeue", *words)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(said)


def test_squeue_takes_its_format_from_the_environment(line: CommandLine) -> None:
    line.environ = {**line.environ, "SQUEUE_FORMAT": "%A"}
    assert line.shim("squeue", "-h").out.split() == ["14", "15", "12"]


def cancelled(api: FakeApi) -> list[str]:
    return [seen.path for seen in api.seen if seen.method == "POST"]


def test_scancel_by_id_by_array_and_by_filters(api: FakeApi, line: CommandLine) -> None:
    for number in ("12", "14", "15", "15_2", "15_3"):
        api.on("POST", f"/jobs/{number}:cancel", Reply(202, {}))
    for words, expected in (
        ("12 15", ["12", "15"]),
        ("15_[2-3]", ["15_2", "15_3"]),
        ("--name=sweep -t PENDING", ["15_3", "15_2"]),
        ("-u wang -t R 12", ["12"]),
        ("--me -n other", []),
    ):
        api.seen.clear()
        ran = line.shim("scancel", *words.split())
        assert (ran.code, ran.out, ran.err) == (0, "", ""), words
        assert cancelled(api) == [f"/jobs/{number}:cancel" for number in expected], words


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["-b", "-s", "USR1"], {"signal": "USR1", "to": "batch"}),
        (["-f", "-s", "TERM"], {"signal": "TERM", "to": "all"}),
        (["-s", "KILL", "-b"], {"signal": "KILL", "to": "batch"}),
        (["-s", "KILL", "-f"], {}),
    ],
)
def test_scancel_names_whom_a_signal_goes_to(
    api: FakeApi, line: CommandLine, words: list[str], sent: dict[str, str]
) -> None:
    api.on("POST", "/jobs/12:cancel", Reply(202, {}))
    line.shim("scancel", *words, "12")
    assert api.seen[-1].json == sent


def test_scancel_sends_signals(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/jobs/12:cancel", Reply(202, {}))
    for given, sent in (("USR1", {"signal": "USR1"}), ("10", {"signal": "USR1"}), ("SIGKILL", {})):
        line.shim("scancel", "-s", given, "12")
        assert api.seen[-1].json == sent


def test_scancel_tells_ids_that_do_not_exist_and_passes_over_ended_ones(
    api: FakeApi, line: CommandLine
) -> None:
    api.on("POST", "/jobs/10:cancel", Reply(409, {"code": "conflict", "detail": "ended"}))
    api.on("POST", "/jobs/99:cancel", Reply(404, {"code": "not_found", "detail": "none"}))
    assert line.shim("scancel", "10").code == 0
    ran = line.shim("scancel", "10", "99")
    assert ran.code == 1
    assert ran.err == "scancel: error: Kill job error on job id 99: Invalid job id specified\n"


SCANCEL_ERRORS = {
    "nothing named": ([], "scancel: error: No job identification provided"),
    "not an id": (["abc"], "scancel: error: Invalid job id abc"),
    "a step": (["12.0"], "scancel: error: Invalid job id 12.0"),
    "bad signal": (["-s", "NOPE", "12"], "Unknown job signal: NOPE"),
    "bad state": (["-t", "DONE"], "Invalid job state specified: DONE"),
}


@pytest.mark.parametrize(("words", "said"), SCANCEL_ERRORS.values(), ids=SCANCEL_ERRORS.keys())
def test_scancel_errors_are_1(words: list[str], said: str, line: CommandLine, api: FakeApi) -> None:
    ran = line.shim("scancel", *words)
    assert ran.code == 1
    assert ran.err.startswith(said)
    assert cancelled(api) == []


def test_sinfo_by_partition_and_state(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/nodes", {"items": examples.nodes(), "next_cursor": None})
    for words, expected in (
        ("-p eth -o %N", "node-[1-2]"),
        ("-p bj1/rtx4090/ib -o %N", "node-3"),
        ("-p all -t idle,mix -N -o %N", "node-1 node-2"),
        ("-p all -t drain -o %T", "drained"),
        ("-n node-2 -p all -o %G", "gpu:rtx4090:8(declared)"),
    ):
        assert line.shim("sinfo", "-h", *words.split()).out.split() == expected.split(), words


@pytest.mark.parametrize(
    ("state", "card", "told"),
    [
        ("drained", "free", "drained drain"),
        ("drained", "busy", "draining drng"),
        ("down", "busy", "down down"),
    ],
)
def test_a_node_that_the_cluster_drains_is_told_as_slurm_tells_it(
    api: FakeApi, line: CommandLine, state: str, card: str, told: str
) -> None:
    node = examples.nodes()[0]
    cards = [{**found, "state": card} for found in node["cards"]]
    message = "drained in Slurm: fan" if state == "drained" else "fan"
    drained = {**node, "state": state, "cards": cards, "message": message}
    api.on("GET", "/nodes", {"items": [drained], "next_cursor": None})
    assert line.shim("sinfo", "-h", "-p", "all", "-o", "%T %t").out.split() == told.split()
    assert line.shim("sinfo", "-h", "-R", "-o", "%E").out.strip() == "fan"


def test_sacct_filters_by_time_state_and_job(line: CommandLine) -> None:
    for words, expected in (
        ("-j 11", "11"),
        ("-S 19:20 -E now", "11 12 14 15_2 15_3"),
        ("-S now-2hours -s CD", "10"),
        ("-u me -s F,R", "11 12"),
        ("-S 2026-03-11", "12 14 15_2 15_3"),
        ("-S 2020-01-01 -E 2020-01-02", ""),
    ):
        ran = line.shim("sacct", "-n", "-X", "-P", "-o", "jobid", *words.split())
        assert (ran.code, ran.out.split()) == (0, expected.split()), words


def test_sacct_lists_every_run_with_duplicates(api: FakeApi, line: CommandLine) -> None:
    job = examples.job_with_runs()
    api.on("GET", "/jobs", {"items": [job], "next_cursor": None})
    api.on("GET", f"/jobs/{job['id']}", job)
    ran = line.shim("sacct", "-D", "-n", "-P", "-o", "JobID,State,Elapsed")
    assert ran.out == "12|PREEMPTED|00:20:00\n12|RUNNING|00:30:00\n"


def test_salloc_is_refused_with_what_to_use(line: CommandLine) -> None:
    ran = line.shim("salloc", "-N1")
    assert ran.code == 1
    assert "sbatch --wait --wrap" in ran.err


def test_srun_outside_a_job_says_what_to_use(line: CommandLine) -> None:
    ran = line.shim("srun", "hostname")
    assert ran.code == 1
    assert "there is no job around this command" in ran.err


@pytest.fixture
def inside(line: CommandLine, tmp_path: Path) -> CommandLine:
    line.environ = {
        "PATH": os.environ["PATH"],
        "SLURM_JOB_ID": "12",
        "SLURM_NTASKS": "2",
        "SLURMD_NODENAME": "node-1",
        "CUDA_VISIBLE_DEVICES": "3,5,6,7",
        "TMPDIR": str(tmp_path),
        "KEEP": "yes",
    }
    return line


def shown(line: CommandLine, tmp_path: Path, *words: str) -> list[str]:
    """What each rank printed, by rank."""
    ran = line.shim("srun", "-o", "out.%t", *words)
    assert ran.code == 0, ran.err
    return [path.read_text().strip() for path in sorted(tmp_path.glob("out.*"))]


def test_srun_gives_each_rank_its_place(inside: CommandLine, tmp_path: Path) -> None:
    say = 'echo "$SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID $RANK/$WORLD_SIZE $SLURM_STEP_ID $KEEP"'
    assert shown(inside, tmp_path, "sh", "-c", say) == ["0/2 0 0/2 0 yes", "1/2 1 1/2 0 yes"]
    assert shown(inside, tmp_path, "-n1", "--export=NONE", "sh", "-c", say)[0] == "0/1 0 0/1 1"


def test_srun_splits_the_cards_between_ranks(inside: CommandLine, tmp_path: Path) -> None:
    say = "echo $CUDA_VISIBLE_DEVICES"
    assert shown(inside, tmp_path, "--gpus-per-task=2", "sh", "-c", say) == ["3,5", "6,7"]
    assert shown(inside, tmp_path, "sh", "-c", say) == ["3,5,6,7", "3,5,6,7"]


def test_srun_starts_no_more_ranks_than_the_job_has_processors_for(inside: CommandLine) -> None:
    inside.environ = {**inside.environ, "SLURM_CPUS_ON_NODE": "4", "SLURM_CPUS_PER_TASK": "2"}
    ran = inside.shim("srun", "-n3", "true")
    assert ran.code == 1
    assert ran.err.startswith(
        "srun: error: Unable to create step for job 12: More processors requested than permitted"
    )
    for words in (("-n2",), ("-n4", "-c1"), ("-n3", "--overcommit")):
        assert inside.shim("srun", *words, "true").code == 0, words


def test_srun_labels_whole_lines(inside: CommandLine) -> None:
    ran = inside.shim("srun", "-l", "-n11", "sh", "-c", "printf 'a\\nno end'; echo oops >&2")
    assert ran.code == 0
    expected = [f"{rank:>2}: {text}" for rank in range(11) for text in ("a", "no end")]
    assert sorted(ran.out.splitlines()) == sorted(expected)
    assert sorted(ran.err.splitlines()) == [f"{rank:>2}: oops" for rank in range(11)]


def test_srun_returns_the_highest_code_of_all_ranks(inside: CommandLine) -> None:
    ran = inside.shim("srun", "-n3", "sh", "-c", "exit $SLURM_PROCID")
    assert ran.code == 2
    assert sorted(ran.err.splitlines()) == [
        "srun: error: node-1: task 1: Exited with exit code 1",
        "srun: error: node-1: task 2: Exited with exit code 2",
    ]
    ran = inside.shim("srun", "-n1", "sh", "-c", "kill -9 $$")
    assert (ran.code, ran.err) == (137, "srun: error: node-1: task 0: Killed\n")


@pytest.mark.parametrize("option", ["--kill-on-bad-exit=1", "--kill-on-bad-exit", "-K", "-K1"])
def test_srun_ends_all_ranks_after_a_bad_exit_when_asked(inside: CommandLine, option: str) -> None:
    ran = inside.shim("srun", "-n2", option, "sh", "-c", "[ $SLURM_PROCID = 0 ] && exit 3; sleep 60")
    assert ran.code == 143
    assert "srun: Terminating StepId=12.0" in ran.err


SRUN_ERRORS = {
    "nothing to run": ([], 1, "No command given to execute."),
    "no such program": (["./none"], 2, "slurmstepd: error: execve(): ./none: No such file or directory"),
    "not a number": (["-n", "x", "id"], 1, "Invalid numeric value 'x' for --ntasks."),
    "several nodes": (["-N2", "id"], 1, "Only allocated 1 nodes asked for 2"),
    "unknown option": (["--colour", "id"], 1, "unrecognized option '--colour'"),
}


@pytest.mark.parametrize(("words", "code", "said"), SRUN_ERRORS.values(), ids=SRUN_ERRORS.keys())
def test_srun_errors(words: list[str], code: int, said: str, inside: CommandLine) -> None:
    ran = inside.shim("srun", *words)
    assert ran.code == code
    assert said in ran.err


def test_options_behind_the_command_are_the_commands_own(inside: CommandLine, tmp_path: Path) -> None:
    assert shown(inside, tmp_path, "-n1", "echo", "-n5", "--kill-on-bad-exit=0", "-l") == [
        "-n5 --kill-on-bad-exit=0 -l"
    ]


def test_declared_cards_are_called_so_where_a_format_has_room(api: FakeApi, line: CommandLine) -> None:
    there, lent = examples.job("11"), examples.job("12", cards_declared=True)
    api.on("GET", "/jobs", {"items": [there, lent], "next_cursor": None})
    assert line.shim("squeue", "-h", "-o", "%i %f").out.splitlines() == ["11 eth", "12 eth,declared"]
    shown = line.run("queue").out
    assert shown.count("(declared)") == 1
