"""``sbatch``: submit a script, from a file, from stdin or as ``--wrap``, with the folder it is called in."""

from __future__ import annotations

from collections.abc import Sequence

from starverse import __version__
from starverse.cli.remote.exit_codes import exit_code_of_job
from starverse.cli.remote.session import Session
from starverse.client.sbatch_words import Words, split_words
from starverse.client.shapes import Lint, Submitted

_USAGE = "Usage: sbatch [OPTIONS(0)...] [ : [OPTIONS(N)...]] script(0) [args(0)...]"
_HELP = """
Options that this platform understands, ignores with a notice or refuses with a reason are listed with
their values by `starverse submit --lint SCRIPT`. Beside those of Slurm:

  --tariff=TARIFF         on_demand (default) or spot
  --price-max=YUAN        bid per card-hour; default the list price
  --cost-max=YUAN         stop before the job has cost more
  --window=NAME           run only inside this window of the price book, such as night
  --dataset=NAME          mount at /dataset/NAME
  --disk=NAME[:/PATH][:ro]  a disk of the team at /data/NAME or PATH
  --secret=NAME           show as the file /run/starverse/secrets/NAME
  --image=IMAGE           run inside this image, shown at /opt/image
  --checkpoint=FOLDER     save this folder of /workspace as a checkpoint by itself
"""


def main(arguments: Sequence[str], session: Session) -> int:
    words = split_words(arguments)
    if "version" in words.own:
        session.write(f"starverse {__version__}\n")
        return 0
    if words.own & {"help", "usage"}:
        session.write(_USAGE + ("\n" + _HELP if "help" in words.own else "\n"))
        return 0
    if words.wrap is not None and words.script is not None:
        session.note("sbatch: error: Script arguments not permitted with --wrap option")
        return 1
    return _submit(words, session)


def _submit(words: Words, session: Session) -> int:
    from starverse.client.errors import Refused
    from starverse.client.submitting import (
        read_script,
        script_of_bytes,
        submission_of,
        submit_with_folder,
        submitted_number,
        wrapped_source,
    )
    from starverse.client.transport import new_key

    if words.wrap is not None:
        source = wrapped_source(words.wrap)
    elif words.script is None:
        source = script_of_bytes("sbatch", session.stdin.read().encode("utf-8", "surrogateescape"))
    else:
        try:
            source = read_script(session.folder, words.script)
        except Refused as error:
            if error.code == "not_found":
                session.note(f"sbatch: error: Unable to open file {words.script}")
                return 1
            raise
    if not source.text.strip():
        session.note("sbatch: error: Batch script is empty!")
        return 1
    submission = submission_of(source, words, session.environ, session.folder)
    jobs = session.client().jobs
    if "test-only" in words.own:
        return _test_only(jobs.lint(submission, when=True), session)
    answer = submit_with_folder(jobs, submission, session.folder, new_key())
    number = submitted_number(answer)
    session.write(f"{number}\n" if "parsable" in words.own else f"Submitted batch job {number}\n")
    if "quiet" not in words.own:
        _tell(answer, session)
    if "wait" in words.own or session.environ.get("SBATCH_WAIT"):
        return _wait(number, session)
    return 0


def _tell(answer: Submitted, session: Session) -> None:
    for notice in answer.get("notices") or ():
        session.note(f"sbatch: {notice}")
    price = answer.get("price")
    if price:
        from starverse.cli.remote.submit_text import price_line

        session.note(f"sbatch: {price_line(price)}")


def _test_only(found: Lint, session: Session) -> int:
    from starverse.cli.remote.submit_text import estimate_line, price_line, remark

    for ignored in found.get("ignored") or ():
        session.note(f"sbatch: {remark('ignored', ignored)}")
    refused = found.get("refused") or ()
    for one in refused:
        session.note(f"sbatch: error: {remark('refused', one)}")
    if refused:
        session.note("sbatch: error: Batch job submission failed")
        return 1
    price = found.get("price")
    session.note("sbatch: the job would be accepted" + (f"; {price_line(price)}" if price else ""))
    estimate = found.get("start_estimate")
    if estimate:
        session.note(f"sbatch: {estimate_line(estimate)}")
    return 0


def _wait(number: str, session: Session) -> int:
    try:
        ended = session.client().jobs.wait_all(number)
    except KeyboardInterrupt:
        session.note(f"sbatch: job {number} goes on; end it with: scancel {number}")
        return 130
    return max(exit_code_of_job(job["state"], job.get("exit_code"), job.get("exit_signal")) for job in ended)
