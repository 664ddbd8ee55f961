"""The supervisor: first process of ours beside the script, it starts it and tells how it ended.

Run inside the bubblewrap sandbox as a file by its path (``python -I -S``), so it imports next to nothing
and nothing of ours; the ``process`` driver calls :func:`supervise` in a forked child. It reports lines to
the launcher: ``ready OWN_PID SCRIPT_PID`` after the first exec, ``failed TEXT``, ``exit CODE`` or
``signal NUMBER``; ``broken TEXT`` before ``ready`` where the script is at fault itself (its interpreter or
its --chdir is not there) and so ends with 127 or 126. bubblewrap alone would fold a signal into 128 + number.

The script is executed once the launcher has written a byte into the control pipe. The supervisor stays
until the launcher closes that pipe: the launcher's end, wanted or by ``kill -9``, is the end of everything
in here.
"""

import _signal  # type: ignore[import-not-found]  # without the enum that `signal` imports
import posix as os  # all that is needed of `os`; that and `__future__` cost a start a tenth of its time
import resource
import select
import sys
import time

_DEAF = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)
_TO_DEFAULT = (*_DEAF, _signal.SIGPIPE, _signal.SIGXFSZ)
_NOT_THERE, _NOT_EXECUTABLE = 127, 126
_E2BIG, _ENOEXEC = 7, 8
AGENT = "agent"
"""In place of a command: the file of a program of ours that follows is run in here."""


def supervise(pipes: tuple[int, int, int, int, int], folder: str, processes: int, command: list[str]) -> None:
    """Start ``command`` in ``folder`` and wait for it, then for the launcher.

    ``pipes``: status (write), control (read), standard output and standard error of the script, its
    environment (read; ``NAME=VALUE`` ended by NUL each). The environment goes past bubblewrap, which
    would obey an LD_PRELOAD outside the sandbox. ``processes`` 0: no limit set here.
    """
    status, control, output, error, given = pipes
    for handle in pipes:
        os.set_inheritable(handle, False)
    try:
        if processes:
            resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
        if not os.read(control, 1):
            return
        script, broken = _run(folder, command, (output, error), _read_environment(given))
    except OSError as error_text:
        os.write(status, f"failed {command[0]}: {error_text.strerror}\n".encode())
        return
    if broken:
        os.write(error, f"starverse: {broken}\n".encode())
        os.write(status, f"broken {broken}\n".encode())
    os.write(status, f"ready {os.getpid()} {script}\n".encode())
    _wait(status, control, script)


def kill_below(root: int) -> None:
    """Kill all that descends from ``root``, again and again until nothing new appears."""
    for _ in range(1000):
        found = _descendants(root)
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, _signal.SIGKILL)
            except OSError:
                continue
        _reap()
        time.sleep(0.002)


def _read_environment(given: int) -> dict[bytes, bytes]:
    parts = []
    while part := os.read(given, 1 << 20):
        parts.append(part)
    environment = {}
    for entry in b"".join(parts).split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals:
            environment[name] = value
    return environment


def _run(
    folder: str, command: list[str], logs: tuple[int, int], environment: dict[bytes, bytes]
) -> tuple[int, str]:
    """The script's process, and what is wrong with the script: then a process that ends at once, as a shell
    would. Raises ``OSError`` for what is not the script's fault.
    """
    try:
        os.chdir(folder)
    except OSError as error:
        return _end_with(_NOT_THERE), f"--chdir {folder}: {error.strerror}"
    try:
        return _start(command, logs, environment), ""
    except OSError as error:
        os.stat(command[0])  # without a script it is not the script's fault
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return _end_with(_NOT_THERE), f"the script's interpreter {_interpreter(command[0])} was not found"
        if isinstance(error, PermissionError) or error.errno in (_E2BIG, _ENOEXEC):
            return _end_with(
                _NOT_EXECUTABLE
            ), f"the script's interpreter {_interpreter(command[0])}: {error.strerror}"
        raise


def _end_with(code: int) -> int:
    child = os.fork()
    if child == 0:
        os._exit(code)
    return child


def _interpreter(script: str) -> str:
    """What the script's first line names, quoted, so that a stray carriage return can be seen."""
    handle = os.open(script, os.O_RDONLY)
    try:
        line = os.read(handle, 256).split(b"\n", 1)[0]
    finally:
        os.close(handle)
    words = line.removeprefix(b"#!").strip(b" \t").split(b" ", 1)
    return repr(words[0].decode("utf-8", "replace"))


def _start(command: list[str], logs: tuple[int, int], environment: dict[bytes, bytes]) -> int:
    for number in _DEAF:
        _signal.signal(number, _signal.SIG_IGN)
    if command[0] == AGENT:
        return _fork_agent(command[1:], logs, environment)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, logs[0], 1),
        (os.POSIX_SPAWN_DUP2, logs[1], 2),
    ]
    return os.posix_spawn(
        command[0], command, environment, file_actions=actions, setpgroup=0, setsigdef=_TO_DEFAULT
    )


def _fork_agent(command: list[str], logs: tuple[int, int], environment: dict[bytes, bytes]) -> int:
    """A program of ours in a copy of this process: another Python would cost the start a third of its time.

    ``command``: its file, what its ``main`` is given.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setpgid(0, 0)
        for number in _TO_DEFAULT:
            _signal.signal(number, _signal.SIG_DFL)
        for source, target in ((os.open("/dev/null", os.O_RDONLY), 0), (logs[0], 1), (logs[1], 2)):
            os.dup2(source, target)
        _close_from(3)
        sys.path[:] = [path for path in sys.path if path]
        code = _load(command[0], environment)["main"](*command[1:])  # type: ignore[operator]
    except BaseException as error:
        os.write(2, f"starverse: {type(error).__name__}: {error}\n".encode())
    os._exit(code)


def _load(file: str, environment: dict[bytes, bytes]) -> dict[str, object]:
    """The names of a compiled module, or of its source."""
    import os as whole

    whole.environ.clear()
    whole.environb.update(environment)
    with open(file, "rb") as opened:  # noqa: PTH123
        code = opened.read()
    names: dict[str, object] = {"__name__": "agent", "__file__": file}
    if file.endswith(".pyc"):
        import marshal

        exec(marshal.loads(code[16:]), names)
    else:
        exec(compile(code, file, "exec"), names)
    return names


def _close_from(low: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= low:
            try:
                os.close(int(name))
            except OSError:
                continue  # the one that the folder was listed by


def _wait(status: int, control: int, script: int) -> None:
    poll = select.poll()
    poll.register(control, select.POLLIN)
    handle = os.pidfd_open(script)
    poll.register(handle, select.POLLIN)
    ended = False
    while True:
        ready = {number for number, _ in poll.poll(1000)}
        if control in ready and not os.read(control, 64):
            return
        if handle in ready:
            poll.unregister(handle)
        code = _reap().get(script)
        if code is not None and not ended:
            ended = True
            word = f"exit {code}" if code >= 0 else f"signal {-code}"
            os.write(status, f"{word}\n".encode())


def _reap() -> dict[int, int]:
    """Exit codes (negative: signal) of the children that ended, orphans taken up included."""
    codes: dict[int, int] = {}
    while True:
        try:
            pid, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return codes
        if pid == 0:
            return codes
        codes[pid] = os.waitstatus_to_exitcode(raw)


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    rest = file.read().rsplit(b") ", 1)[1].split()
            except (OSError, IndexError):
                continue
            if rest[0] not in (b"Z", b"X"):
                children.setdefault(int(rest[1]), []).append(int(name))
    found: list[int] = []
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting.extend(children.get(pid, ()))
    return found


def main(words: list[str]) -> None:
    """``words``: the five pipes, how many processes, the folder, the command."""
    numbers = [int(text) for text in words[:6]]
    supervise((*numbers[:4], numbers[4]), words[6], numbers[5], words[7:])  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)
