"""A run of any framework: it logs rollouts and metrics, which are committed while it goes on.

What is logged is checked and written to the spool durably, which takes milliseconds and no lock of
the lake. A thread commits the spool every few seconds, so that readers see the run as it grows.
"""

from __future__ import annotations

import atexit
import errno
import json
import logging
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias, cast

import store
from store.code.completion import clean_text, is_text
from store.dossier.pages import read_task_names
from store.errors import (
    FlywheelError,
    LakeUnreachable,
    RolloutRejected,
    RowsRejected,
    UnknownName,
    UsageError,
    summarize_error,
)
from store.ids import content_id, uuid7
from store.lake.attachment import connect
from store.lake.location import Location
from store.lake.sql_files import read_sql
from store.rollouts.follow import Followed
from store.rollouts.rows import (
    Rollout,
    RolloutOrigin,
    make_rollout_id,
    make_rollout_rows,
    unwrap,
)
from store.schema import catalog
from store.schema.row_checks import Stage
from store.writing import spool, transaction
from store.writing.bundle import Bundle, Rows
from store.writing.writer import Writer, make_run, record_run

log = logging.getLogger(__name__)

OnError: TypeAlias = Literal["raise", "warn"]
COMMIT_S = 5.0
FOLLOW_S = 1.0
LEFT_OUT = "left-out"
"""Folder in the spool with the rollouts that broke a rule."""
_AUTHOR = "store.run"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Run:
    """A run that logs rollouts and metrics; `store.run` creates it.

    Use it as a context manager, or call `close`. It closes itself when the process exits.
    """

    def __init__(
        self,
        name: str,
        location: Location,
        config: Mapping[str, Any] | None = None,
        *,
        rank: int | None = None,
        policy: str | None = None,
        license: str | None = None,
        vocabulary: int | None = None,
        on_error: OnError = "raise",
    ) -> None:
        self.name = name
        given_rank = os.environ.get("RANK", "0") if rank is None else str(rank)
        for option, value, is_valid in (
            ("a name", name, is_text(name) and name.strip()),
            ("a rank from 0", given_rank, given_rank.isdecimal() and int(given_rank) < 2**31),
            ("the text of a policy", policy, policy is None or is_text(policy)),
            ("the text of a license", license, license is None or is_text(license)),
            (
                "a vocabulary's size",
                vocabulary,
                vocabulary is None or (isinstance(vocabulary, Integral) and vocabulary > 0),
            ),
            ('on_error "raise" or "warn"', on_error, on_error in ("raise", "warn")),
            ("a config that is a dict", config, hasattr(config or {}, "items")),
        ):
            if not is_valid:
                raise UsageError(f"store.run needs {option}, not {value!a:.80}")
        self.rank = int(given_rank)
        self._on_error: OnError = on_error
        self._one_logs, self._one_commits = threading.Lock(), threading.Lock()
        self._is_closed = False
        self._ends = threading.Event()
        self._unspooled: list[Bundle] = []
        """Bundles that could not be written to the spool."""
        self._left_out: list[FlywheelError] = []
        self._unkept: list[str] = []
        """Lines that could not be written to `left_out_file`."""
        self._warned: set[str] = set()
        self._task_ids: dict[str, str | None] = {}
        self._logged: set[str] = set()
        """Attempts of this process that have an id of the caller."""
        self._held = ExitStack()
        try:
            self._writer = self._held.enter_context(Writer(location, _AUTHOR))
            self._begin(config)
            self._spool = spool.Spool(location.spool, _AUTHOR)
            self._held.callback(self._spool.close)
            # A connection of its own, because the thread uses that of the writer.
            connection = self._held.enter_context(connect(to=location, one_thread=True))
            self._stage = Stage(connection, catalog.load())
        except BaseException:
            self._held.__exit__(*sys.exc_info())
            raise
        self.origin = RolloutOrigin(
            run_id=self.run_id,
            policy=policy or name,
            license=license,
            rank=self.rank,
            vocabulary=vocabulary,
            find_task=self._find_task,
        )
        """What `make_rollout_rows` needs to know of the run."""
        self._thread = threading.Thread(target=self._commit, name=_AUTHOR, daemon=True)
        # One process of a host commits what all of its processes log.
        if os.environ.get("LOCAL_RANK", "0") == "0":
            self._thread.start()
        atexit.register(self._close_at_exit)

    def _begin(self, config: Mapping[str, Any] | None) -> None:
        """Store the run, or continue the stored one; hold the lease of this rank."""
        with self._writer.reader() as lake:
            self.run_id = content_id("run", lake.lake_id, self.name)
        leases = self._held.enter_context(self._writer.location.open_leases())
        if not leases.take([f"{self.run_id} {self.rank}"]):
            raise FlywheelError(
                f'another process logs to the run "{self.name}" as rank {self.rank}',
                "Give each process a rank of its own by store.run(…, rank=…) or the variable RANK, "
                "or give the run another name.",
            )
        try:
            texts = json.loads(json.dumps(config or {}, default=_describe))  # keys become texts
            stated = clean_text(json.dumps(texts, sort_keys=True, ensure_ascii=False))
        except Exception as error:  # values run the code of other programs
            why = f"the config is no JSON: {summarize_error(error)}"
            raise UsageError(why, "Give names with texts, numbers, lists and dicts.") from error
        row = make_run(kind="training", name=self.name, config=stated, run_id=self.run_id)
        # The rows of every rank refer to the run. The first rank stores it.
        self._writer.append({"runs": [row]}, f"{self.name} begins")
        self._lake = self._held.enter_context(self._writer.reader())
        stored = self._lake.run(read_sql(__file__, "stored_run"), [self.run_id]).one()
        assert stored is not None
        if config is not None and (differences := _compare(str(stored["config"]), stated)):
            raise FlywheelError(
                f'the lake has a run "{self.name}" with another config: {differences}',
                "Resume it with the config that it began with, or give this run another name.",
            )
        metrics = self._lake.run(
            "SELECT name, step, value FROM metrics WHERE run_id = $1", [self.run_id]
        )
        self._metrics = {
            (str(one["name"]), int(one["step"])): one["value"] for one in metrics.rows()
        }
        self._next_step = max((step + 1 for _, step in self._metrics), default=0)
        self._tasks = read_task_names(self._lake)
        self._is_resumed = bool(stored["has_begun"])
        if self.rank == 0:
            message = f"{self.name} {'resumes' if self._is_resumed else 'begins'}"
            record = record_run(self._writer, row, message, resumed=self._is_resumed)
            self._held.enter_context(record)
        else:
            self._held.callback(self._writer.flush)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit what is logged, and store how the run ended."""
        with self._one_logs:
            if self._is_closed:
                return
            self._is_closed = True
        atexit.unregister(self._close_at_exit)
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            with self._held:
                self._write([])
                if error is not None:
                    raise error
        except FlywheelError as fault:
            if error is None and self._on_error == "raise":
                raise
            if fault is not error:
                log.warning("%s: %s", self.name, fault)
        except BaseException as raised:
            if raised is not error:
                raise
        if self._unspooled:
            log.error("%s: %d appends could not be stored", self.name, len(self._unspooled))
        if self._unkept:
            self._keep([], [])
        if self._left_out:
            log.warning(
                "%s: %d rollouts broke a rule and are kept in %s. The first: %s",
                *(self.name, len(self._left_out), self.left_out_file, self._left_out[0]),
            )

    def close(self) -> None:
        """Commit what is logged, and store that the run has finished."""
        self.__exit__(None, None, None)

    def _close_at_exit(self) -> None:
        error = getattr(sys, "last_value", None)
        self.__exit__(None if error is None else type(error), error, None)

    def log_rollouts(self, rollouts: Iterable[Rollout]) -> None:
        """Store rollouts durably; readers see them after the next commit, seconds later.

        They are mappings in the form that `store.rollouts.rows` describes. One with an `id` that
        the run has is not stored again.

        Raises:
            RolloutRejected: one breaks a rule, and nothing is stored. With on_error="warn", it is
                kept in `left_out_file` instead, and the others are stored.
            LakeUnreachable: the disk is full, for example, and nothing is stored. With
                on_error="warn", the rollouts wait in memory for the next call.
        """
        if isinstance(rollouts, Mapping | str) or not hasattr(rollouts, "__iter__"):
            raise UsageError("log_rollouts takes a list of rollouts", "Write log_rollouts([…]).")
        self._log([*rollouts], self._on_error)

    def _log(self, rollouts: Sequence[Rollout], on_error: OnError) -> None:
        with self._one_logs:
            self._require_open()
            named: dict[int, str] = {}
            for number, one in enumerate(rollouts):
                # Objects of other programs: `make_rollout_rows` says what is wrong with them.
                with suppress(Exception):
                    if one.get("id") is not None:
                        named[number] = make_rollout_id(self.run_id, one)
            # A resumed run has attempts that this process did not log.
            rollout_ids = list(named.values())
            stored = self._logged.intersection(rollout_ids)
            if self._is_resumed and len(stored) < len(rollout_ids):
                rows = self._lake.run(
                    "SELECT generation_id FROM generations "
                    "WHERE run_id = $1 AND generation_id IN (SELECT unnest($2))",
                    [self.run_id, rollout_ids],
                )
                stored |= {str(row["generation_id"]) for row in rows.rows()}
            fresh = [at for at in range(len(rollouts)) if named.get(at) not in stored]
            refused: list[tuple[int, RolloutRejected]] = []

            def refuse(place: int, error: RolloutRejected) -> None:
                at = fresh[place]
                refused.append((at, RolloutRejected(at, error.key, error.why, error.hint)))

            given = [rollouts[at] for at in fresh]
            tables = make_rollout_rows(self.origin, given, refuse)
            if refused and on_error == "raise":
                raise refused[0][1]
            try:
                self._append_rollouts(tables)
            except RowsRejected:
                if on_error == "raise":
                    raise
                # Append each rollout separately to find the one that breaks the rule.
                for at in sorted({*fresh} - {at for at, _ in refused}):
                    if named.get(at) in stored:
                        continue
                    try:
                        self._append_rollouts(make_rollout_rows(self.origin, [rollouts[at]]))
                    except RowsRejected as error:
                        refused.append((at, RolloutRejected(at, None, str(error))))
                    else:
                        stored |= {named[at]} if at in named else set()
            # One that was refused may come again, corrected.
            places = named.keys() - {at for at, _ in refused}
            self._logged |= {named[at] for at in places}
            if refused:
                self._keep(rollouts, refused)

    def _append_rollouts(self, tables: dict[str, list[dict[str, Any]]]) -> None:
        if "kernels" in tables:
            tables["kernel_features"] = store.extract_row_features(tables["kernels"])
        if tables:
            self._append(tables, f"{self.name}: {len(tables['generations'])} attempts")

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Store metrics durably; without a step, for the step after the last one.

        Nested names are joined by dots. Only finite numbers are stored, and the first value of a
        metric at a step stays. Metrics of another rank than 0 are named rank1/NAME.
        """
        with self._one_logs:
            self._require_open()
            try:
                step = self._next_step if step is None else int(unwrap(step))
                flat = [*_flatten(metrics)]
                if abs(step) >= 2**53:
                    raise ValueError(f"step {step} is too large")
            except Exception as error:  # values run the code of other programs
                why = f"metrics of step {step!a:.40} cannot be read: {summarize_error(error)}"
                if self._on_error == "raise":
                    raise UsageError(why, 'Write log({"loss": 0.5}, step=7).') from error
                self._warn_once(type(error).__name__, why)
                return
            rows: dict[tuple[str, int], dict[str, Any]] = {}
            again: list[str] = []
            for label, given in flat:
                name = clean_text(label if self.rank == 0 else f"rank{self.rank}/{label}")
                try:
                    value = float(unwrap(given))
                    is_number = math.isfinite(value) and not isinstance(given, str | bytes)
                except Exception:
                    value, is_number = 0.0, False
                if not is_number:
                    said = f"{_say(given):.40}, which is no finite number and is not stored"
                    self._warn_once(f"{name} {type(given)}", f"step {step}: {name} is {said}")
                elif (name, step) in self._metrics:
                    # TRL logs the epoch of the last step twice.
                    again += [name] if self._metrics[name, step] != value else []
                else:
                    rows[name, step] = {
                        "run_id": self.run_id,
                        "name": name,
                        "step": step,
                        "value": value,
                    }
            if again:  # a training that was started again has many
                others = f", as of {len(again) - 1} other metrics" if len(again) > 1 else ""
                said = (
                    f"{again[0]} of step {step} is stored; its first value stays{others}. "
                    "If this is another training, give it another name: its rollouts join those "
                    "of the first one"
                )
                self._warn_once("stored metrics", said)
            if rows:
                self._append({"metrics": list(rows.values())}, f"{self.name}: step {step}")
            self._metrics |= {key: row["value"] for key, row in rows.items()}
            self._next_step = max(self._next_step, step + 1)

    def follow(self, path: str | Path, *, live: bool = True) -> None:
        """Log the rollouts that another program writes to a file, or a folder of *.jsonl.

        Reads the formats of `store.rollouts.follow`, such as verl's `trainer.rollout_data_dir`.
        With `live` it goes on until Ctrl-C, and otherwise to the end of what is there. Lines that
        are no rollouts are left out and kept in `left_out_file`; each line is stored once, however
        often the path is followed.
        """
        followed = Followed(Path(path))
        if not live and not followed.path.exists():
            raise UsageError(f"{path} does not exist", "Name a file, or a folder of *.jsonl.")
        if live:
            try:
                while True:
                    self._log_lines(followed)
                    time.sleep(FOLLOW_S)
            except KeyboardInterrupt:
                # What was read and not logged is read again; what was logged has its id.
                followed = Followed(Path(path))
        self._log_lines(followed, to_the_end=True)
        if others := followed.count_others():
            kinds = ", ".join(f"{count} of {suffix}" for suffix, count in others.items())
            self._warn_once(f"others {path}", f"files of {path} that are no .jsonl: {kinds}")

    def _log_lines(self, followed: Followed, *, to_the_end: bool = False) -> None:
        with suppress(FileNotFoundError):  # the other program has not begun
            for lines in followed.read(to_the_end=to_the_end):
                self._log([one for one in lines if isinstance(one, dict)], "warn")
                for error in lines:
                    if isinstance(error, FlywheelError) and str(error) not in self._warned:
                        self._warned.add(str(error))
                        self._keep([None], [(0, error)])

    def flush(self) -> int:
        """Commit everything that is logged so far; return a snapshot that contains it."""
        with self._one_commits:
            return self._writer.flush()

    @property
    def left_out_file(self) -> Path:
        """The file with the rollouts of this process that broke a rule, as lines of JSON."""
        name = f"{self.run_id[:16]}-{self.rank}.jsonl"
        return self._writer.location.spool / LEFT_OUT / name

    def _require_open(self) -> None:
        if self._is_closed:
            raise FlywheelError(
                f'the run "{self.name}" is closed', "Resume it: store.run with the same name."
            )

    def _append(self, tables: Mapping[str, Rows], message: str) -> None:
        (rows,) = transaction.check_bundles(self._stage, [tables])
        self._write([Bundle(bundle_id=uuid7(), message=message, author=_AUTHOR, tables=rows)])

    def _write(self, bundles: list[Bundle]) -> None:
        """Write bundles to the spool, with those that wait in memory."""
        waiting = [*self._unspooled, *bundles]
        if not waiting:
            return
        try:
            self._spool.write(waiting)
        except LakeUnreachable as error:
            if self._on_error == "raise":
                raise
            self._unspooled = waiting
            log.warning("%s: %d appends wait in memory: %s", self.name, len(waiting), error)
        else:
            self._unspooled = []

    def _commit(self) -> None:
        while not self._ends.wait(COMMIT_S):
            if not spool.list_files(self._writer.location.spool):
                continue
            try:
                self.flush()
            except Exception as error:
                # The next round or the end of the run commits it.
                text = f"the commit waits: {summarize_error(error)}"
                self._warn_once(text, text)

    def _find_task(self, wanted: str) -> str | None:
        if wanted not in self._task_ids:
            try:
                self._task_ids[wanted] = str(self._tasks.find(wanted)["task_id"])
            except UnknownName:
                self._task_ids[wanted] = None
        return self._task_ids[wanted]

    def _keep(self, rollouts: Sequence[Any], refused: Sequence[tuple[int, FlywheelError]]) -> None:
        """Write rollouts that break a rule to a file, so that they can be corrected."""
        self._unkept += [_make_line(str(error), rollouts[at]) for at, error in refused]
        self._left_out += [error for _, error in refused]
        if refused:
            self._warn_once("left out", f"left out: {refused[0][1]}")
        try:
            self.left_out_file.parent.mkdir(parents=True, exist_ok=True)
            with open(self.left_out_file, "ab", buffering=0) as file:
                end = file.seek(0, os.SEEK_END)
                data = "".join(self._unkept).encode(errors="replace")
                if file.write(data) < len(data):
                    file.truncate(end)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:  # the next rollout that is left out tries again
            self._warn_once("unkept", f"{self.left_out_file} cannot be written: {error}")
        else:
            self._unkept = []

    def _warn_once(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            log.warning("%s: %s", self.name, text)


def _say(value: object) -> str:
    try:
        return ascii(value)
    except Exception:  # values run the code of other programs
        return f"a {type(value).__name__}"


def _flatten(metrics: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _flatten(cast("Mapping[str, Any]", value), f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _make_line(why: str, rollout: object) -> str:
    """Return a line of `left_out_file`; values that JSON cannot state are named by their type."""
    try:
        return json.dumps({"why": why, "rollout": rollout}, default=_describe) + "\n"
    except Exception:  # values run the code of other programs
        if not isinstance(rollout, Mapping):
            return json.dumps({"why": why, "rollout": f"<{type(rollout).__name__}>"}) + "\n"
    stated: dict[str, Any] = {}
    for key, value in cast("Mapping[object, object]", rollout).items():
        try:
            stated[str(key)] = json.loads(json.dumps(value, default=_describe))
        except Exception:
            stated[f"{key!a:.80}"] = f"<{type(value).__name__}>"
    return json.dumps({"why": why, "rollout": stated}) + "\n"


def _describe(value: Any) -> Any:
    """Return what JSON lacks as plain values, the same in each process."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(map(str, cast("set[Any]", value)))
    return _ADDRESS.sub("", str(value))


def _compare(stored: str, stated: str) -> str:
    before, now = json.loads(stored), json.loads(stated)
    return ", ".join(
        f"{key} is {json.dumps(now.get(key))[:60]} and was {json.dumps(before.get(key))[:60]}"
        for key in sorted(before.keys() | now.keys())
        # As texts, because NaN differs from itself.
        if json.dumps(before.get(key)) != json.dumps(now.get(key))
    )
