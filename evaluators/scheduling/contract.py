"""The contract of an evaluator: what one file in evaluators/ or ./flywheel/evaluators/ defines.

A bare Python file in one of these folders is a member of this room. The name of the file is the
name of the evaluator, with hyphens for underscores; the first line of its docstring is what
`evaluators list` prints. The file defines `VERSION`, `Config` and `judge`, and may define
`remeasure` and `confirm_win` together. A complete evaluator:

    \"\"\"Reject kernels with long lines.\"\"\"

    from dataclasses import dataclass

    VERSION = 1

    @dataclass(frozen=True, kw_only=True)
    class Config:
        longest: int = 100
        \"\"\"Most characters in a line.\"\"\"

    def judge(case, bench, config):
        correct = max(map(len, case.code.splitlines())) <= config.longest
        return {"evaluations": [{
            "evaluation_id": "1", "evaluator": "line-length", "evaluator_version": VERSION,
            "kernel_id": case.kernel_id, "task_id": case.task_id,
            "workload_id": case.workload_id, "device_id": bench.row["device_id"],
            "status": "correct" if correct else "incorrect",
            "reason": None if correct else "incorrect_numerical",
        }]}

The judge process, which holds no lake, calls these functions. It must not execute the text of a
case itself: `bench.candidate` starts a worker process for that. The process that holds the lake
accepts rows of the case alone and gives them new identities (`evaluators.scheduling.answers`).
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from evaluators.judging.case import Case
from store.commandline import members
from store.errors import FlywheelError

if TYPE_CHECKING:
    from evaluators.judging.bench import Bench

ROOM = "evaluators"
DEFAULT = "judge"
"""Evaluator of commands that name none."""

Row: TypeAlias = "dict[str, Any]"
Tables: TypeAlias = "dict[str, list[dict[str, Any]]]"
ConfirmWin: TypeAlias = "Callable[[Tables, Sequence[Row], Mapping[str, Any] | None], Tables]"


class Evaluator(Protocol):
    """What the module of an evaluator defines."""

    __name__: str

    @property
    def __file__(self) -> str | None:
        """Path of the module."""
        ...

    @property
    def VERSION(self) -> int:
        """Version of the rules, 1 or more.

        Raise it when the same kernel may get another verdict: kernels that only an older version
        has judged are pending again, and older verdicts no longer count.
        """
        ...

    @property
    def Config(self) -> Callable[..., Any]:
        """Options: a frozen dataclass with a default for every field.

        Each field is an option of `evaluators run` and `evaluators check`, and its docstring is the
        help text. Values are JSON values or tuples of them, and are stored with the run. A field
        `total_s` limits the seconds of one case: the judge process has twice that and 15 minutes.
        A field `precision` names the precision of verdicts, or several as a tuple: on a GPU, each
        kernel then gets a verdict by each, and `judge` gets a Config with one of them at a time. A
        field `protocol` is full or training; verdicts by the latter serve rewards and never rank.
        """
        ...

    def judge(self, case: Case, bench: Bench, config: Any) -> Tables:
        """Return the rows of one kernel on one task, first of all its row of `evaluations`.

        The row needs evaluation_id (any text), evaluator, evaluator_version, kernel_id, task_id,
        workload_id, device_id and status. Rows of `timings`, `findings` and `analyses` may follow;
        timings and findings repeat the evaluation_id. Further rows of `evaluations` are of other
        shapes of the task, each with its workload in `workloads`; they get the protocol `shape` and
        rank nothing. A failing kernel is a row, not an exception;
        status evaluator_error is for faults of the evaluator, and leaves the kernel pending.
        """
        ...


class RemeasuringEvaluator(Evaluator, Protocol):
    """An evaluator whose surprising wins are measured again, on another device where there is one.

    With several judges, `judge` gets cases with `case.sessions` first. Where it then raises the
    flag `unconfirmed_win`, another judge gets the case with `case.sessions` second and calls
    `remeasure`, and `confirm_win` combines both sessions.
    """

    def remeasure(self, case: Case, bench: Bench, config: Any) -> list[Row]:
        """Return rows of `timings` of a second session, without evaluation_id.

        Raises Failed: the kernel fails in this session (evaluators.sandbox.failures).
        """
        ...

    def confirm_win(
        self, tables: Tables, second: Sequence[Row], failed: Mapping[str, Any] | None
    ) -> Tables:
        """Return the final rows of a case, given what `judge` and `remeasure` have returned.

        Args:
            second: Rows that `remeasure` returned; empty where the second session has failed.
            failed: Status, reason, message and detail where the kernel failed in it.
        """
        ...


def load(name: str) -> Evaluator:
    """Import an evaluator and check that it follows the contract.

    Raises:
        UnknownName: no evaluator has this name.
        FlywheelError: its file cannot be imported, or lacks a part of the contract.
    """
    member = members.find_member(ROOM, name)
    module = member.load()
    version: object = getattr(module, "VERSION", None)
    config: object = getattr(module, "Config", None)
    has_remeasure, has_confirm_win = (
        callable(getattr(module, name, None)) for name in ("remeasure", "confirm_win")
    )
    fault = None
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        fault = "VERSION must be an integer, 1 or more"
    elif not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        fault = "Config must be a dataclass"
    elif not callable(getattr(module, "judge", None)):
        fault = "judge must be a function"
    elif has_remeasure != has_confirm_win:
        fault = "remeasure and confirm_win belong together"
    else:
        try:
            json.dumps(dataclasses.asdict(config()))
        except TypeError as error:
            fault = f"Config() must have JSON values as defaults ({error})"
    if fault is not None:
        raise FlywheelError(
            f"{member.file} is not an evaluator: {fault}.",
            "An evaluator defines VERSION, Config and judge(case, bench, config).",
        )
    return cast("Evaluator", module)


def load_default() -> Evaluator:
    """Import the default evaluator, whatever files the user has."""
    return cast("Evaluator", importlib.import_module(f"{ROOM}.{DEFAULT}"))


def name_of(evaluator: Evaluator) -> str:
    """Return the name under which an evaluator's rows are stored."""
    return evaluator.__name__.rpartition(".")[2].replace("_", "-")


def list_precisions(config: Any, device_kind: str) -> list[str | None]:
    """Return the precisions that a Config asks a verdict by, or [None] where it has none.

    On a processor precisions do not differ, and the first one stands for all.
    """
    precision = getattr(config, "precision", None)
    precisions = (
        list(dict.fromkeys(precision)) if isinstance(precision, tuple | list) else [precision]
    )
    return precisions if device_kind == "cuda" else precisions[:1]


def get_precision(config: Any) -> str | None:
    """Return the one precision of a Config, or None. Raises FlywheelError if it has several."""
    precisions = list_precisions(config, "cuda")
    if len(precisions) != 1:
        raise FlywheelError(
            f"one precision is needed here, and {len(precisions)} are given",
            "`evaluators run` and `evaluators check` take several.",
        )
    return precisions[0]


def adjust_config(config: Any, case: Case) -> Any:
    """Return a Config that asks for the verdict of a case, by its precision and protocol."""
    if case.precision is not None:
        several = isinstance(config.precision, tuple | list)
        precision = (case.precision,) if several else case.precision
        config = dataclasses.replace(config, precision=precision)
    if case.protocol is not None:
        config = dataclasses.replace(config, protocol=case.protocol)
    return config


def find_confirm_win(evaluator: Evaluator) -> ConfirmWin | None:
    """Return the function that decides a surprising win, or None where there is none."""
    return getattr(evaluator, "confirm_win", None)
