"""``starverse``: the command's entry point.

``starverse --version`` answers before anything else is imported; all other commands go through
:func:`run`, which catches every failure at one place and turns it into an exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starverse.cli.remote.session import Session


def main() -> int:
    """Run the process's own command line; the exit code."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        from starverse import __version__

        sys.stdout.write(f"starverse {__version__}\n")
        return 0
    from starverse.cli.remote.session import Session

    return run(arguments, Session())


def run(arguments: Sequence[str], session: Session) -> int:
    """Run one command line in a session; prints failures, raises nothing, and gives the exit code."""
    import click

    from starverse.cli.remote import exit_codes
    from starverse.cli.remote.failures import Failure, failure_of, report
    from starverse.cli.remote.root import root
    from starverse.cli.remote.session import Declined

    words = list(arguments)
    session.json = "--json" in words[: words.index("--") if "--" in words else None]
    try:
        result = root.main(args=words, prog_name="starverse", standalone_mode=False, obj=session)
        return session.exit_code or (result if isinstance(result, int) else 0)
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        session.note(error.format_message())
        return exit_codes.USAGE
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"see `{context.command_path} --help`" if context is not None else None
        return report(session, Failure("usage", error.format_message(), hint))
    except Declined:
        session.note("nothing was changed")
        return exit_codes.FAILURE
    except (KeyboardInterrupt, click.Abort):
        session.note("interrupted")
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return exit_codes.FAILURE
    except Exception as error:
        failure = failure_of(error)
        if failure is None and isinstance(error, OSError):
            failure = Failure("failure", _os_error_text(error))
        if failure is None:
            raise
        return report(session, failure)
    finally:
        session.close()


def _discard_stdout() -> None:
    """The reader is gone; keep the interpreter from complaining about it once more while it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _os_error_text(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or error}"


if __name__ == "__main__":
    sys.exit(main())
