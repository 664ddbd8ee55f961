"""What sbatch promises, seen from inside the real sandbox: codes, signals, arrays, files, shims, cards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from starverse.testing.in_time import wait_for
from starverse.testing.live_checks import COUNTER, check_at_rest, check_charges, let_finish, read_file
from starverse.testing.live_person import Person
from starverse.testing.live_server import LiveServer

ONE = "--gres=gpu:rtx4090:1"
COUNT = """#SBATCH --checkpoint=state
mkdir -p state; i=$(cat state/count 2>/dev/null || echo 0); echo "from $i"
while [ ! -e finish ]; do i=$((i+1)); echo $i > state/new; mv state/new state/count; sleep 0.1; done
echo "to $i"
"""


@pytest.fixture(scope="module")
def ann(server: LiveServer) -> Person:
    return server.person("ann", yuan=50)


def test_exit_codes_and_signals_of_scripts(ann: Person) -> None:
    scripts = {"true": (0, None), "exit 7": (7, None), "kill -9 $$": (None, 9), "kill -TERM $$": (None, 15)}
    numbers = {script: ann.sbatch(f"{script}\n", ONE) for script in scripts}
    for script, (code, signal) in scripts.items():
        job = ann.wait_end(numbers[script])
        assert (job["exit_code"], job["exit_signal"]) == (code, signal), script
        assert job["state"] == ("succeeded" if code == 0 else "failed"), script
        check_charges(ann, numbers[script])


def test_wait_returns_the_jobs_own_code(ann: Person, server: LiveServer) -> None:
    folder = server.make_folder("codes")
    (folder / "job.sh").write_text("#!/bin/bash\necho here\nexit 42\n")
    assert ann.call("sbatch", "--wait", ONE, "job.sh", folder=folder).returncode == 42
    waited = ann.call("submit", "--wait", ONE, "job.sh", folder=folder)
    assert (waited.returncode, waited.stdout) == (42, "here\n")


@pytest.mark.parametrize(
    ("option", "heard"),
    [("--signal=B:USR2@9", "shell\n"), ("--signal=USR2@9", "child\n")],
    ids=["to the batch shell", "to all but the batch shell"],
)
def test_a_signal_before_the_time_limit(ann: Person, option: str, heard: str) -> None:
    script = """trap 'echo shell; exit 5' USR2
bash -c 'trap "echo child; exit 0" USR2; while :; do sleep 0.1; done' &
wait; exit 5
"""
    number = ann.sbatch(script, ONE, "--time=0:12", option)
    assert ann.wait_end(number)["state"] == "failed"
    (run,) = check_charges(ann, number)
    assert (run["exit_code"], run["cause"]) == (5, "user_code"), "it left before the limit"
    assert [line for line in ann.log(number).splitlines() if line in ("shell", "child")] == heard.split()


def test_an_array_runs_so_many_at_a_time_and_each_task_has_its_file(ann: Person, tmp_path: Path) -> None:
    script = """echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_MIN-$SLURM_ARRAY_TASK_MAX"
date +%s.%N; sleep 1; date +%s.%N
"""
    array = ann.sbatch(script, ONE, "--array=1-3%2", "--output=logs/%A_%a.txt")
    spans = []
    for task in (1, 2, 3):
        assert ann.wait_end(f"{array}_{task}")["state"] == "succeeded"
        ann.run("cp", f"{array}_{task}:logs/{array}_{task}.txt", str(tmp_path))
        first, start, end = (tmp_path / f"{array}_{task}.txt").read_text().splitlines()
        assert first == f"{task} of 1-3"
        spans.append((float(start), float(end)))
    at_once = [sum(start <= moment < end for start, end in spans) for moment, _ in spans]
    assert max(at_once) <= 2


def test_names_with_spaces_and_chinese_in_names_folders_and_outputs(ann: Person, server: LiveServer) -> None:
    folder = server.make_folder("我的 论文")
    (folder / "数据 集").mkdir()
    (folder / "数据 集" / "输入.txt").write_text("你好", "utf-8")
    script = 'cat "输入.txt"; echo; echo oops >&2; pwd; echo "$SLURM_JOB_NAME"; echo 结果 > "../输出 1.txt"\n'
    options = ("--job-name=实验 一", "--chdir=数据 集", "--output=日志 %j.out", "--error=%x.err")
    number = ann.sbatch(script, ONE, *options, folder=folder)
    assert ann.wait_end(number)["exit_code"] == 0, ann.log(number)
    ann.run("cp", f"{number}:输出 1.txt", ".", folder=folder)
    assert (folder / "输出 1.txt").read_text("utf-8") == "结果\n"
    said = ["你好", "/workspace/数据 集", "实验 一"]
    assert read_file(ann, number, f"数据 集/日志 {number}.out").splitlines() == said
    assert read_file(ann, number, "数据 集/实验 一.err") == "oops\n"
    assert ann.job(number)["name"] == "实验 一"


def test_the_default_output_is_read_back_with_cp(ann: Person, server: LiveServer) -> None:
    folder = server.make_folder("defaults")
    number = ann.sbatch("echo out; echo err >&2\n", ONE, folder=folder)
    ann.wait_end(number)
    ann.run("cp", f"{number}:slurm-{number}.out", ".", folder=folder)
    assert (folder / f"slurm-{number}.out").read_text() == "out\nerr\n"


def test_dependencies_wait_run_or_never_come_true(ann: Person) -> None:
    good, bad = (ann.sbatch(f"sleep 1; exit {code}\n", ONE) for code in (0, 1))
    after_good = ann.sbatch("echo then\n", ONE, f"--dependency=afterok:{good}")
    after_bad = ann.sbatch("echo never\n", ONE, f"--dependency=afterok:{bad}")
    rescue = ann.sbatch("echo rescue\n", ONE, f"--dependency=afternotok:{bad}")
    assert ann.wait_end(after_good)["state"] == "succeeded"
    assert ann.wait_end(rescue)["state"] == "succeeded"
    assert ann.wait_end(after_bad)["reason"] == "dependency_never"
    assert ann.job(after_good)["started_at"] >= ann.job(good)["ended_at"]
    assert ann.runs(after_bad) == []


def test_slurms_commands_inside_a_job(ann: Person) -> None:
    waiting = ann.sbatch("echo no\n", ONE, "--begin=now+1hour")
    script = f"""set -e
cat > child.sh <<'END'
#!/bin/bash
#SBATCH --gres=gpu:rtx4090:1
echo "child of $1"
END
child=$(sbatch --parsable child.sh $SLURM_JOB_ID)
echo "child $child"
squeue -h -o "%i %t" | sort -n
scancel {waiting}
srun -n 2 bash -c 'echo "rank $RANK of $WORLD_SIZE local $LOCAL_RANK proc $SLURM_PROCID"' | sort
srun -n 2 bash -c 'exit $((SLURM_PROCID * 3))' || echo "srun ended with $?"
"""
    number = ann.sbatch(script, ONE, "--ntasks=2")
    assert ann.wait_end(number, 60)["exit_code"] == 0, ann.log(number)
    said = ann.log(number).splitlines()
    (child,) = (line.split()[1] for line in said if line.startswith("child "))
    assert ann.wait_end(child)["state"] == "succeeded"
    assert ann.log(child) == f"child of {number}\n"
    assert ann.wait_end(waiting)["state"] == "cancelled"
    assert f"{number} R" in said
    assert f"{waiting} PD" in said
    ranks = [f"rank {rank} of 2 local {rank} proc {rank}" for rank in (0, 1)]
    assert [line for line in said if line.startswith("rank ")] == ranks
    assert "srun ended with 3" in said


def test_the_python_of_the_image_saves_a_checkpoint(ann: Person) -> None:
    script = """set -e
command -v python3 >/dev/null && python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || exit 77
cd /
python3 - <<'END'
from starverse.checkpoint import Checkpointer
with Checkpointer().save(7) as folder:
    (folder / "state").write_text("7")
END
ls $STARVERSE_CHECKPOINT_DIR
"""
    number = ann.sbatch(script, ONE)
    if ann.wait_end(number)["exit_code"] == 77:
        pytest.skip("this host has no python3 of 3.11 or newer")
    assert "step-0000000007-a1" in ann.log(number).split(), ann.log(number)


def test_cards_and_environment_are_those_granted(ann: Person) -> None:
    script = (
        "echo $CUDA_VISIBLE_DEVICES; echo $SLURM_GPUS_ON_NODE $MINE ${STARVERSE_PASSWORD:-nothing}\n"
        "until [ -e finish ]; do sleep 0.1; done\n"
    )
    options = ("--gres=gpu:rtx4090:2", "--export=CUDA_VISIBLE_DEVICES='0,1,2,3,4,5,6,7',MINE=kept")
    numbers = [ann.sbatch(script, *options) for _ in range(3)]
    seen: list[str] = []
    for number in numbers:
        ann.wait_state(number, "running")
    for number in numbers:
        let_finish(ann, number)
        ann.wait_end(number)
        visible, rest = ann.log(number).splitlines()
        (run,) = ann.runs(number)
        assert visible == ",".join(str(card["index"]) for card in run["cards"])
        assert rest == "2 kept nothing"
        seen += visible.split(",")
    assert len(set(seen)) == 6


def test_a_dataset_is_there_and_cannot_be_written(ann: Person, server: LiveServer) -> None:
    folder = server.make_folder("tiny-dataset")
    (folder / "rows.csv").write_text("1,2\n")
    told = ("--title", "Two", "--source", "made here", "--licence", "CC0-1.0")
    server.operator.run("dataset", "add", "tiny", str(folder), *told)
    server.operator.run("dataset", "verify", "tiny")
    script = """cat /dataset/tiny/rows.csv
echo 3 >> /dataset/tiny/rows.csv || echo "not written"
rm /dataset/tiny/rows.csv || echo "not removed"
"""
    number = ann.sbatch(script, ONE, "--dataset=tiny")
    ann.wait_end(number)
    assert [line for line in ann.log(number).splitlines() if ":" not in line] == [
        "1,2",
        "not written",
        "not removed",
    ]
    server.operator.run("dataset", "verify", "tiny")


def test_a_named_folder_is_saved_and_restored_across_a_reclaim(ann: Person, server: LiveServer) -> None:
    rival = server.person("rival", yuan=50)
    number = ann.sbatch(COUNT, "--gres=gpu:rtx4090:2", "--tariff=spot", "--time=00:10:00")
    wait_for(lambda: _counted(ann, number) >= 5, "counting")
    claimant = rival.sbatch("echo mine\n", "--gres=gpu:rtx4090:8", "--time=00:05:00")
    assert rival.wait_end(claimant, 60)["state"] == "succeeded"
    ann.wait_state(number, "running")
    let_finish(ann, number)
    assert ann.wait_end(number)["state"] == "succeeded"
    starts = [int(line.split()[1]) for line in ann.log(number).splitlines() if line.startswith("from ")]
    assert starts[0] == 0
    assert len(starts) == 2
    assert starts[1] >= 5
    first, second = check_charges(ann, number)
    assert first["cause"] == "reclaimed"
    assert second["resume_from"]
    assert ann.job(number)["checkpoint"]["step"] >= 1


def test_two_teams_see_nothing_of_each_other(ann: Person, server: LiveServer) -> None:
    ben = server.person("ben")
    folder = server.make_folder("secrets")
    (folder / "secret-of-ann").write_text("x")
    hers = ann.sbatch("exec -a process-of-ann bash -c 'while :; do sleep 0.2; done'\n", ONE, folder=folder)
    ann.wait_state(hers, "running")
    script = """find / -name 'secret-of-*' -not -path '/proc/*' 2>/dev/null
for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep process-of-ann; done
ls /workspace; id -u
"""
    his = ben.sbatch(script, ONE)
    ben.wait_end(his)
    assert ben.log(his).splitlines()[-3:] == ["job.sh", f"slurm-{his}.out", "1000"], ben.log(his)
    assert "ann" not in ben.log(his)
    for words in (("job", "show", hers), ("job", "logs", hers), ("cp", f"{hers}:secret-of-ann", ".")):
        assert ben.call(*words).returncode == 3, words
    assert ben.call("job", "cancel", hers, "--yes").returncode == 3
    assert json.loads(ben.run("--json", "job", "ls"))["items"][0]["number"] == his
    ann.run("scancel", hers)
    assert ann.wait_end(hers)["state"] == "cancelled"


def test_cancelled_at_every_step_of_a_start(ann: Person, server: LiveServer) -> None:
    """Nothing runs on and nothing is charged but what ran."""
    numbers = []
    for pause in range(6):
        numbers.append(ann.sbatch(COUNTER, ONE))
        if pause % 2:
            wait_for(lambda: ann.job(numbers[-1])["state"] != "queued" or ann.runs(numbers[-1]), "a start")
        ann.client.jobs.cancel(numbers[-1])
    for number in numbers:
        assert ann.wait_end(number)["state"] == "cancelled"
        check_charges(ann, number)
    check_at_rest(server)


def _counted(person: Person, number: str) -> int:
    """How far the job's folder ``state`` has got; 0 before it is there."""
    if "state" not in [entry["path"] for entry in person.client.jobs.files(number)]:
        return 0
    names = [Path(entry["path"]).name for entry in person.client.jobs.files(number, "state")]
    return int(read_file(person, number, "state/count") or 0) if "count" in names else 0
