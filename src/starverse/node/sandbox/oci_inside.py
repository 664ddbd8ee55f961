"""The supervisor in a container image: what the image lacks for us is added by it, from inside.

Run as :mod:`~starverse.node.sandbox.inside` is, with two words before: where our packages are, and the
descriptor of the user namespace to be root of (-1: none). Whatever it writes lands in the image's writable
layer, with the workload's own rights: the platform never follows a path that a workload may have made.
"""

import os
import sys

PASSWD = "/etc/passwd"
DONE = "/.starverse/prepared"
GUARD = "/run/sshd"
"""Where sshd shuts in those that have not signed in."""
SHELLS = ("/bin/bash", "/bin/sh")
LOGIN = "user"
"""Whom the gateway signs in as: here another name of root."""
CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "SYS_CHROOT": 18,
    "SETFCAP": 31,
}
"""Of root inside, over the image's own users (numbers of ``linux/capability.h``): nothing that mounts,
traces, or reaches network or devices."""
_CAPABILITY_MAX = 63
_CAPABILITY_VERSION = 0x20080522
_CLONE_NEWUSER = 0x10000000
_PR_CAPBSET_DROP = 24
_SSHD_IDS = (105, 74, 22, 999, 998, 997)


def prepare(about: str) -> None:
    """Accounts and folders that are needed, and once the owners and modes that the store does not keep."""
    add_accounts(PASSWD)
    make_guard(GUARD)
    if os.path.exists(DONE):  # noqa: PTH110
        return
    import json  # once in the life of a layer

    with open(about, "rb") as file:  # noqa: PTH123
        odd = json.loads(file.read()).get("odd", ())
    for path, mode, uid, gid in odd:
        give(path, mode, uid, gid)
    with open(DONE, "wb"):  # noqa: PTH123
        pass


def make_guard(folder: str) -> None:
    """A folder of root's that nobody else writes, whatever had its name: sshd begins with no other."""
    if os.path.lexists(folder) and (os.path.islink(folder) or not os.path.isdir(folder)):  # noqa: PTH112, PTH114
        os.unlink(folder)  # noqa: PTH108
    os.makedirs(folder, 0o755, exist_ok=True)  # noqa: PTH103
    os.chown(folder, 0, 0)
    os.chmod(folder, 0o755)  # noqa: PTH101


def enter(namespace: int) -> None:
    """Become root of the user namespace that is open as ``namespace``, below the one of the mounts, with no
    more than :data:`CAPABILITIES`; not even what is executed gets others."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(namespace, _CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "its user namespace cannot be entered")
    os.close(namespace)
    for number in range(_CAPABILITY_MAX + 1):
        if number not in CAPABILITIES.values():
            library.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    kept = sum(1 << number for number in CAPABILITIES.values())
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)(kept, kept, kept, 0, 0, 0)
    if library.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")


def give(path: str, mode: int, uid: int, gid: int) -> None:
    """As the image has it; what cannot be had here stays root's."""
    try:
        os.chown(path, uid, gid, follow_symlinks=False)
        if not os.path.islink(path):  # noqa: PTH114
            os.chmod(path, mode)  # noqa: PTH101
    except OSError:
        return


def add_accounts(passwd: str) -> None:
    """Root, the name that the gateway signs in by, and the user that sshd becomes before it knows anybody.

    Raises ``OSError`` where the image has another one of that name.
    """
    lines = _lines(passwd)
    accounts = {fields[0]: fields for line in lines if len(fields := line.split(":")) == 7}
    added = []
    if "root" not in accounts:
        added.append("root:x:0:0:root:/root:/bin/sh")
    if LOGIN not in accounts:
        shell = accounts.get("root", [""])[-1]
        added.append(f"{LOGIN}:x:0:0:root:/root:{_choose_shell(shell)}")
    elif accounts[LOGIN][2] != "0":
        raise OSError(0, f"the image has an account {LOGIN}, by which the platform signs in")
    if "sshd" not in accounts:
        taken = {fields[2] for fields in accounts.values()}
        free = next(uid for uid in (*_SSHD_IDS, *range(200, 900)) if str(uid) not in taken)
        added.append(f"sshd:x:{free}:{free}::{GUARD}:/usr/sbin/nologin")
    if added:
        os.makedirs(os.path.dirname(passwd), 0o755, exist_ok=True)  # noqa: PTH103, PTH120
        aside = f"{passwd}.starverse"
        with open(aside, "w", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
            file.write("".join(f"{line}\n" for line in (*lines, *added)))
        os.chmod(aside, 0o644)  # noqa: PTH101
        os.replace(aside, passwd)  # noqa: PTH105


def _choose_shell(wanted: str) -> str:
    return next((shell for shell in (wanted, *SHELLS) if shell and os.access(shell, os.X_OK)), "/bin/sh")


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def main(words: list[str]) -> None:
    packages, namespace, *rest = words
    sys.path.append(packages)
    from starverse.node.sandbox import inside

    if namespace != "-1":
        try:
            enter(int(namespace))
            prepare("/.starverse-image.json")
        except OSError as error:
            os.write(int(rest[0]), f"failed the image: {error.strerror} {error.filename or ''}\n".encode())
            return
    inside.main(rest)


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)
