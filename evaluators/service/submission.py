"""What a client asks for: one kernel, one task, on one class of devices."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import store
from evaluators.judging.case import Policy
from store.code.entry_points import choose_stored
from store.errors import FlywheelError

LONGEST_CODE = 400_000
"""Most characters of a kernel, as in a completion."""
MOST_FILES = 32
PRIORITIES = range(10)
QUEUE_LIMIT_S = 3600.0
"""Seconds that a judgment waits at most, unless its client says otherwise."""
LONGEST_S = 86_400.0
_SOURCE = "service"
_PATH = "kernel.py"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_FIELDS = {
    *("task", "code", "path", "files", "policy", "device_class", "priority", "queue_s", "judge_s"),
}


class Refused(FlywheelError):
    """A request that cannot be followed; `status` is its HTTP status and `code` its name."""

    retry_after_s: int | None = None
    """Seconds after which it may be sent again."""

    def __init__(self, status: int, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.status, self.code = status, code


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One valid request, before its task and device class are looked up."""

    task: str
    """Id or name of a task, as the client writes it."""
    kernel: Mapping[str, Any]
    """Row of `kernels`."""
    policy: str | None
    device_class: str | None
    priority: int
    """Order within the client's own work; higher is sooner."""
    queue_limit_s: float
    judge_limit_s: float | None

    @property
    def kernel_id(self) -> str:
        """Identity of the kernel's files."""
        return self.kernel["kernel_id"]


def parse_submission(value: object) -> Submission:
    """Return the submission in a JSON value. Raises Refused, which names the field."""
    if not isinstance(value, dict):
        raise _malformed("a judgement must be an object")
    given = cast("dict[str, object]", value)
    unknown = sorted(set(given) - _FIELDS)
    if unknown:
        raise _malformed(f"no field {unknown[0]!a:.60}", f"There are {', '.join(sorted(_FIELDS))}.")
    policy = _read_text(given, "policy", 40, required=False)
    if policy is not None and policy not in get_args(Policy):
        raise _malformed("no such policy", f"There are {', '.join(get_args(Policy))}.")
    priority = given.get("priority", 5)
    if isinstance(priority, bool) or not isinstance(priority, int) or priority not in PRIORITIES:
        raise _malformed(f"priority must be an integer from 0 to {PRIORITIES[-1]}")
    return Submission(
        task=_read_text(given, "task", 500) or "",
        kernel=_read_kernel(given),
        policy=policy,
        device_class=_read_text(given, "device_class", 200, required=False),
        priority=priority,
        queue_limit_s=_read_seconds(given, "queue_s") or QUEUE_LIMIT_S,
        judge_limit_s=_read_seconds(given, "judge_s"),
    )


def _read_kernel(given: Mapping[str, object]) -> dict[str, Any]:
    """Return the row of a kernel. Its bytes are taken as they are."""
    code = _read_text(given, "code", LONGEST_CODE) or ""
    main = _read_path(given, {}) if "path" in given else _PATH
    files: dict[str, str] = {main: code}
    listed = given.get("files") or []
    if not isinstance(listed, list) or len(cast("list[object]", listed)) > MOST_FILES:
        raise _malformed(f"files must be a list of at most {MOST_FILES}")
    total = len(code)
    for one in cast("list[object]", listed):
        if not isinstance(one, dict) or set(cast("dict[str, object]", one)) != {"path", "code"}:
            raise _malformed("each of files must have path and code, and nothing else")
        entry = cast("dict[str, object]", one)
        path = _read_path(entry, files)
        files[path] = _read_text(entry, "code", LONGEST_CODE) or ""
        total += len(files[path])
    if total > LONGEST_CODE:
        raise _malformed(f"the kernel is longer than {LONGEST_CODE} characters")
    others = [{"path": path, "code": text} for path, text in files.items() if path != main]
    entry_point = choose_stored(code)
    return {
        "kernel_id": store.ids.kernel_id(files, main, entry_point),
        "code": code,
        "path": main,
        "entry_point": entry_point,
        "other_files": others or None,
        "source": _SOURCE,
    }


def extract_row_features(kernels: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of `kernel_features` of rows of `kernels`."""
    import pyarrow as pa

    schema = store.catalog.load().table("kernels").arrow_schema
    names = ("kernel_id", "code", "path", "other_files")
    columns = pa.schema([schema.field(name) for name in names])
    rows = [{name: kernel.get(name) for name in names} for kernel in kernels]
    texts = pa.Table.from_pylist(rows, schema=columns)
    return store.extract_features(texts).to_pylist()


def _read_path(given: Mapping[str, object], taken: Collection[str]) -> str:
    path = str(_read_text(given, "path", 200))
    if not _PLAIN_PATH.fullmatch(path) or path in taken:
        raise _malformed(
            f"{path!a:.80} cannot be the path of a file",
            "Paths are relative, plain and distinct, such as kernel.py or csrc/kernel.cu.",
        )
    return path


def _read_text(
    given: Mapping[str, object], name: str, longest: int, *, required: bool = True
) -> str | None:
    value = given.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, str) or not value or len(value) > longest:
        raise _malformed(f"{name} must be a text of 1 to {longest} characters")
    if "\0" in value:
        raise _malformed(f"{name} has a NUL character")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _malformed(f"{name} has half of a surrogate pair") from error
    return value


def _read_seconds(given: Mapping[str, object], name: str) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < cast("float", value) <= LONGEST_S:
        raise _malformed(f"{name} must be a number of seconds up to {LONGEST_S:g}")
    return float(cast("float", value))


def choose_class(wanted: str | None, classes: Mapping[str, str]) -> str:
    """Return the class of devices that a client means. Raises Refused: no such class, or several.

    A client gives the name of a class, a kind (cpu or cuda) if one class is of it, or None if there
    is one class. `classes` has the kind of each.
    """
    if not classes:
        raise Refused(503, "no_devices", "no worker has joined yet", "Try again in some seconds.")
    if wanted is not None and wanted in classes:
        return wanted
    matches = [name for name, kind in classes.items() if wanted in (None, kind)]
    if len(matches) == 1:
        return matches[0]
    what = "several device classes match" if matches else "no such device class"
    known = ", ".join(sorted(classes))
    raise Refused(422, "unknown_device_class", what, f"Give device_class: one of {known}.")


def _malformed(message: str, hint: str | None = None) -> Refused:
    return Refused(422, "invalid", message, hint)
