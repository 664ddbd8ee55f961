"""``submit``: lint, show the price, ask, pack the folder, submit, and with ``--wait`` follow to the end."""

from __future__ import annotations

from typing import Any

import click

from starverse.cli.remote import exit_codes
from starverse.cli.remote.commands import Command, session_of
from starverse.cli.remote.follow_log import print_log
from starverse.cli.remote.session import Session
from starverse.cli.remote.submit_text import cheaper_text, lint_text, price_line, remark
from starverse.cli.remote.tables import visible
from starverse.cli.remote.telling import tell_break
from starverse.client.sbatch_words import Grammar, Words, split_words
from starverse.client.shapes import Lint, Submitted

_GRAMMAR = Grammar(
    options_follow_script=True,
    flags=frozenset({"lint", "yes", "json"}),
    values=frozenset({"team"}),
)
_HELP = """Submit a batch script with the folder it is called in.

Every option of sbatch goes through as typed, before or after SCRIPT; our own stand beside them. Arguments of
the script follow `--`. SCRIPT `-` reads stdin.

\b
Examples:
  starverse submit --gres=gpu:rtx4090:2 train.sh
  starverse submit --tariff spot --checkpoint state --cost-max 20 train.sh -- --epochs 3
"""
_OURS = (
    ("--tariff TARIFF", "on_demand (default) or spot."),
    ("--price-max YUAN", "At most so much per card-hour."),
    ("--cost-max YUAN", "Stop before the job has cost more."),
    ("--window NAME", "Run only inside this window of the price book, such as night."),
    ("--defer-until TIME", "May be put off for a better price until then."),
    ("--dataset NAME[@VERSION]", "Read-only at /dataset/NAME."),
    ("--disk NAME[:/PATH][:ro]", "A disk of the team, at /data/NAME or PATH."),
    ("--secret NAME", "The file /run/starverse/secrets/NAME."),
    ("--image IMAGE", "Run inside this image; see `starverse image ls`."),
    ("--checkpoint FOLDER", "Folder of /workspace that is saved as a checkpoint by itself."),
    ("--net none|internet|host", "What the job reaches; none unless asked for."),
)
"""What the script's own directives may say, too; ``domain/sbatch/options.py`` reads them."""


class SubmitCommand(Command):
    """Leaves the options of sbatch as they were typed; only its own are parsed by click."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = split_words(args, _GRAMMAR)
        own = [f"--{name}" for name in sorted(words.own & {"lint", "yes", "json", "help", "wait", "quiet"})]
        for name, value in words.own_values.items():
            own.append(f"--{name}={value}")
        rest = super().parse_args(ctx, own)
        if "-y" in words.options:
            words.options.remove("-y")
            ctx.params["yes"] = True
        if "test-only" in words.own:
            ctx.params["lint"] = True
        ctx.params["words"] = words
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Options beside those of sbatch, also as #SBATCH lines"):
            formatter.write_dl(_OURS)
        super().format_options(ctx, formatter)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["SCRIPT", "[OPTIONS OF SBATCH]", "[-- ARGUMENTS]"]


@click.command("submit", cls=SubmitCommand, help=_HELP)
@click.option(
    "--lint", is_flag=True, help="Show effective options, ignored lines and the price; submit nothing."
)
@click.option("--wait", is_flag=True, help="Follow the log to the end; the exit code is the job's own.")
@click.option("--quiet", is_flag=True, help="No notices, no price.")
@click.option("--yes", is_flag=True, help="Do not ask. Nobody is asked where no terminal is.")
@click.pass_context
def submit(ctx: click.Context, words: Words, lint: bool, wait: bool, quiet: bool, yes: bool) -> None:
    session = session_of(ctx)
    _check_words(words)
    from starverse.client.submitting import submission_of, submit_with_folder
    from starverse.client.transport import new_key

    submission = submission_of(_source(session, words), words, session.environ, session.folder)
    jobs = session.client().jobs
    found = jobs.lint(submission, when=lint)
    if lint:
        session.emit(dict(found), lambda: lint_text(found))
        session.exit_code = exit_codes.USAGE if found.get("refused") else exit_codes.OK
        return
    if not quiet:
        _tell_price(session, found)
    if not found.get("refused"):
        session.confirm("Submit?", yes=yes)
    answer = submit_with_folder(jobs, submission, session.folder, new_key())
    _tell_submitted(session, answer, quiet=quiet, data=not wait)
    if wait:
        _wait(session, answer)


def _check_words(words: Words) -> None:
    if words.stray:
        raise click.UsageError(
            f"{words.stray[0]!r} stands alone: arguments of the script follow `--`; "
            "an option and its value are one word or two"
        )
    if words.script is None and words.wrap is None:
        raise click.UsageError("name the script: starverse submit train.sh")
    if words.script is not None and words.wrap is not None:
        raise click.UsageError("a script or --wrap, not both")


def _source(session: Session, words: Words) -> Any:
    from starverse.client.submitting import read_script, script_of_bytes, wrapped_source

    if words.wrap is not None:
        return wrapped_source(words.wrap)
    if words.script == "-":
        return script_of_bytes("stdin", session.stdin.read().encode("utf-8", "surrogateescape"))
    return read_script(session.folder, str(words.script))


def _tell_price(session: Session, found: Lint) -> None:
    for ignored in found.get("ignored") or ():
        session.note(remark("ignored", ignored))
    price = found.get("price")
    if price:
        session.note(price_line(price))
        for cheaper in price.get("cheaper") or ():
            session.note(f"cheaper: {cheaper_text(cheaper)}")


def _tell_submitted(session: Session, answer: Submitted, *, quiet: bool, data: bool) -> None:
    from starverse.client.submitting import submitted_number

    number = submitted_number(answer)
    for notice in () if quiet else answer.get("notices") or ():
        session.note(f"notice: {notice}")
    if data:
        session.emit(dict(answer), lambda: number)
    count = answer.get("jobs_count") or 1
    what = f"job {number}" if count == 1 else f"array {number} of {count} jobs"
    if not quiet:
        first = number if count == 1 else answer["job"]["number"]
        session.note(
            f"submitted {what}; watch {'it' if count == 1 else 'its first'}: starverse job logs -f {first}"
        )


def _wait(session: Session, answer: Submitted) -> None:
    """Follow to the end; Ctrl-C leaves the job running."""
    from starverse.client.submitting import submitted_number

    number = submitted_number(answer)
    jobs = session.client().jobs
    try:
        if (answer.get("jobs_count") or 1) == 1 and not session.json:
            print_log(session, number)
        ended = jobs.wait_all(number, on_break=tell_break(session))
    except KeyboardInterrupt:
        session.note(
            f"\njob {number} goes on; look: starverse job show {number}; "
            f"end it: starverse job cancel {number}"
        )
        session.exit_code = exit_codes.INTERRUPTED
        return
    codes = [
        exit_codes.exit_code_of_job(job["state"], job.get("exit_code"), job.get("exit_signal"))
        for job in ended
    ]
    session.exit_code = max(codes, default=exit_codes.FAILURE)
    if session.json:
        session.emit({"items": ended}, lambda: "")
    for job in ended:
        why = job.get("message") or job.get("reason") or ""
        session.note(f"job {job['number']} {job['state']}" + (f": {visible(why)}" if why else ""))
