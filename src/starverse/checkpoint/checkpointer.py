"""The class that training scripts use: save, resume, and leave in time when a notice comes."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from starverse.checkpoint import loads
from starverse.checkpoint.arrays import (
    ArrayInfo,
    Buffer,
    LoadedArray,
    Pool,
    describe,
    raw_view,
    read_arrays,
    write_arrays,
)
from starverse.checkpoint.errors import (
    AlreadyPublished,
    CheckpointError,
    SaveFailed,
    Unusable,
    Unverified,
    is_disk_full,
    save_failure,
)
from starverse.checkpoint.manifest import (
    FileEntry,
    ManifestInvalid,
    Published,
    folder_name,
    parse_folder_name,
    published,
    safe_path,
    verify,
)
from starverse.checkpoint.notice import Notice, NoticeListener
from starverse.checkpoint.publish import ATTEMPT_MAX, Origin, Writing
from starverse.checkpoint.retention import prune

EXIT_FOR_REQUEUE = 99
"""Exit code that means: stopped on notice with a checkpoint, queue me again."""

_LOG = logging.getLogger("starverse.checkpoint")


def _now() -> datetime:
    return datetime.now(UTC)


class Checkpointer:
    """Saves checkpoints that survive a kill at any instant, and finds the one to resume from.

    On the platform everything comes from the environment; elsewhere give a folder, or ``./checkpoints`` is
    used. One process of a run saves. Saving again a step that this object has published changes nothing.

    ``keep_last``: how many to keep, ``None`` for all. ``handle_signal``: also hear SIGUSR1 (main thread
    only). ``environment`` and ``now`` replace ``os.environ`` and the clock.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        keep_last: int | None = 3,
        handle_signal: bool = True,
        environment: Mapping[str, str] | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        if keep_last is not None and keep_last < 1:
            raise Unusable(f"keep_last is {keep_last}; at least one checkpoint has to stay (None keeps all)")
        env = os.environ if environment is None else environment
        self.directory = Path(directory or env.get("STARVERSE_CHECKPOINT_DIR") or "checkpoints").absolute()
        self.keep_last = keep_last
        self._origin = Origin(_attempt(env), env.get("STARVERSE_JOB_ID") or None, now)
        self._resume_from = env.get("STARVERSE_RESUME_FROM") or None
        notice_file = env.get("STARVERSE_NOTICE_FILE")
        self._listener = NoticeListener(Path(notice_file) if notice_file else None)
        self._pool = Pool()
        self._thread: threading.Thread | None = None
        self._error: CheckpointError | None = None
        self._own: set[int] = set()
        loads.settle_loads(self.directory)
        if handle_signal:
            self._listener.listen()

    @property
    def attempt(self) -> int:
        """This run's attempt number; 0 outside the platform."""
        return self._origin.attempt

    @property
    def requested(self) -> bool:
        """Whether the platform asks to save and leave: look at it in every step."""
        return self._listener.requested

    @property
    def notice(self) -> Notice | None:
        """The notice with its reason and deadline, ``None`` as long as there is none."""
        return self._listener.notice

    @contextlib.contextmanager
    def save(self, step: int) -> Iterator[Path]:
        """``with checkpointer.save(step) as folder:`` write files into ``folder``; the end publishes them.

        An exception inside abandons the checkpoint. Raises :class:`DiskFull`, :class:`Fenced`,
        :class:`AlreadyPublished` and the other errors of the library; the previous checkpoint stays.
        """
        self.wait()
        writing = Writing(self.directory, step, self._origin)
        try:
            yield writing.folder
        except BaseException as error:
            writing.abandon()
            if isinstance(error, OSError) and is_disk_full(error):
                raise save_failure(error) from error
            raise
        self._publish(writing)

    def save_bytes(self, step: int, files: Mapping[str, bytes]) -> Path:
        """Publish ``files`` (relative path -> content) as the checkpoint of ``step``; returns its folder."""
        with self.save(step) as folder:
            for name, content in files.items():
                _inside(folder, name).write_bytes(content)
        return self._path(step)

    def save_files(self, step: int, files: Mapping[str, str | os.PathLike[str]]) -> Path:
        """Publish copies of files (relative path -> where it lies) as ``step``; returns the folder."""
        with self.save(step) as folder:
            for name, source in files.items():
                shutil.copyfile(source, _inside(folder, name))
        return self._path(step)

    def save_arrays(self, step: int, arrays: Mapping[str, Buffer]) -> Path:
        """Publish arrays (name -> C-contiguous buffer) as ``step`` and return when they are durable."""
        self.wait()
        views = {name: raw_view(name, value) for name, value in arrays.items()}
        infos = describe(arrays)
        self._publish_arrays(step, infos, views)
        return self._path(step)

    def save_async(self, step: int, arrays: Mapping[str, Buffer]) -> None:
        """Copy the arrays and publish them in the background; blocks for the copy only.

        The memory of the copies is kept for the next save. A save still under way is waited for; an error
        of it is raised by the next call of :meth:`save_async`, :meth:`save` or :meth:`wait`.
        """
        self.wait()
        views = {name: raw_view(name, value) for name, value in arrays.items()}
        infos = describe(arrays)
        copies = self._pool.copy(views)

        def publish() -> None:
            try:
                self._publish_arrays(step, infos, copies)
            except Exception as error:
                self._error = (
                    error if isinstance(error, CheckpointError) else SaveFailed(f"{error!r} while saving")
                )
                _LOG.error("checkpoint of step %d was not published: %s", step, error)

        self._thread = threading.Thread(target=publish, name=f"starverse-checkpoint-{step}")
        self._thread.start()

    def reserve(self, arrays: Mapping[str, Buffer]) -> None:
        """Have the memory of :meth:`save_async` ready, so that the first save is as quick as the others."""
        self.wait()
        self._pool.reserve({name: len(raw_view(name, value)) for name, value in arrays.items()})

    def wait(self) -> None:
        """Wait for the save under way; raises its error, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def latest(self) -> Published | None:
        """The newest checkpoint whose every byte matches its manifest and that is not given up."""
        return loads.newest(self.directory)

    def resume_path(self) -> Path | None:
        """Where to resume from, verified: the platform's choice, unless this attempt has published since.

        ``None`` on a first run.
        """
        return next((path for path in self._choices() if verify(path).verified), None)

    @contextlib.contextmanager
    def restoring(self) -> Iterator[Path | None]:
        """``with checkpointer.restoring() as path:`` load from ``path`` (``None``: a first run).

        A clean end reports the checkpoint loadable. An exception, or the process dying inside, counts as a
        failed load; the second one falls back to the checkpoint before.
        """
        path = self.resume_path()
        if path is None:
            yield None
            return
        with contextlib.ExitStack() as stack:
            with _report(path):
                stack.enter_context(loads.loading(path.parent, path.name))
            try:
                yield path
            except Exception:
                self.failed_to_load(path)
                raise
        self.loaded(path)

    def load(
        self, path: str | os.PathLike[str], into: Mapping[str, Buffer] | None = None
    ) -> dict[str, LoadedArray]:
        """Read the arrays of the checkpoint at ``path``, verified while they are read.

        ``into`` maps names to writable buffers that receive the bytes in place. Raises
        :class:`Unverified` and :class:`Unusable`.
        """
        return read_arrays(Path(path), into)

    def restore(
        self, into: Mapping[str, Buffer] | None = None
    ) -> tuple[Published, dict[str, LoadedArray]] | None:
        """Read the arrays of the newest checkpoint that verifies, in one pass; ``None`` on a first run.

        Reports it loadable. Quicker than :meth:`resume_path` and :meth:`load`, which read everything twice.
        """
        for path in self._choices():
            try:
                arrays = read_arrays(path, into)
            except Unverified as error:
                _LOG.warning("falling back: %s", error)
                continue
            self.loaded(path)
            return _as_published(path), arrays
        return None

    def loaded(self, checkpoint: int | str | os.PathLike[str] | Published) -> None:
        """Report that a checkpoint (its step, folder or :class:`Published`) was loaded: it is *loadable*."""
        path = self._find(checkpoint)
        with _report(path):
            loads.report_loaded(path.parent, path.name, self._origin)

    def failed_to_load(self, checkpoint: int | str | os.PathLike[str] | Published) -> int:
        """Report that a checkpoint failed to load; returns how often it has. Two give it up."""
        path = self._find(checkpoint)
        with _report(path):
            return loads.report_failed(path.parent, path.name)
        return 0

    def exit_for_requeue(self) -> NoReturn:
        """Wait for a save under way, then leave with the code that asks to be queued again."""
        self.wait()
        raise SystemExit(EXIT_FOR_REQUEUE)

    def _choices(self) -> Iterator[Path]:
        """Folders to try, best first; nothing is said about their bytes."""
        found = loads.candidates(self.directory)
        on_platform = self._origin.run is not None
        own = [item.path for item in found if on_platform and item.attempt == self.attempt]
        yield from own
        chosen = None if self._resume_from is None else Path(self._resume_from).absolute()
        if chosen is not None and chosen not in own and chosen.name not in loads.given_up(chosen.parent):
            yield chosen
        yield from (item.path for item in found if item.path not in own and item.path != chosen)

    def _publish(self, writing: Writing, known: Mapping[str, FileEntry] | None = None) -> None:
        dead = loads.given_up(self.directory)
        try:
            done = writing.publish(known, replaceable=dead)
        except AlreadyPublished:
            if writing.step not in self._own:
                raise
            return
        self._own.add(writing.step)
        with _report(done.path):
            loads.forget_failures(self.directory, done.path.name)
            if self.keep_last is not None:
                prune(self.directory, self.keep_last, trusted={done.path.name})

    def _publish_arrays(self, step: int, infos: Sequence[ArrayInfo], views: Mapping[str, memoryview]) -> None:
        with Writing(self.directory, step, self._origin) as writing:
            try:
                entries = write_arrays(writing.folder, infos, views)
            except OSError as error:
                raise save_failure(error) from error
            self._publish(writing, entries)

    def _path(self, step: int) -> Path:
        return self.directory / folder_name(step, self.attempt)

    def _find(self, checkpoint: int | str | os.PathLike[str] | Published) -> Path:
        if isinstance(checkpoint, int):
            found = [item.path for item in published(self.directory) if item.step == checkpoint]
            if not found:
                raise Unusable(f"step {checkpoint} is not published in {self.directory}")
            return found[-1]
        path = checkpoint.path if isinstance(checkpoint, Published) else Path(checkpoint).absolute()
        if parse_folder_name(path.name) is None:
            raise Unusable(f"{path} is not a published checkpoint's folder, such as {folder_name(100, 0)}")
        return path


@contextlib.contextmanager
def _report(path: Path) -> Iterator[None]:
    """Bookkeeping beside checkpoints must not end a training run: an ``OSError`` is logged only."""
    try:
        yield
    except OSError as error:
        _LOG.warning("could not keep the record beside %s: %s", path, error)


def _attempt(env: Mapping[str, str]) -> int:
    text = env.get("STARVERSE_RETRY") or "0"
    if not (text.isascii() and text.isdigit() and int(text) <= ATTEMPT_MAX):
        raise Unusable(f"STARVERSE_RETRY is {text!r}; it has to be the attempt number, a whole number from 0")
    return int(text)


def _inside(folder: Path, name: str) -> Path:
    try:
        path = folder / safe_path(name)
    except ManifestInvalid as error:
        raise Unusable(str(error)) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _as_published(path: Path) -> Published:
    step, attempt = parse_folder_name(path.name) or (0, 0)
    return Published(attempt, step, path)
