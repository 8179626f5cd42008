"""`load_best`: the fastest kernels of a task as a function, with guards.

This is the one place of the room that runs a kernel outside the sandbox (THREATS.md, "Use of a
winner"). It runs only kernels that the caller has named as trusted, and whose text has the hash
that was judged.
"""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import store
from store.dossier.pages import choose_device
from store.errors import FlywheelError, UnknownName

if TYPE_CHECKING:
    from store.winners.selection import Selection

_KERNEL_ID = re.compile(r"[0-9a-f]{64}")
_HOW_TO_TRUST = (
    'Name whose code you trust: trust="TAG" for kernels that this lake itself had judged when you '
    'made the tag, trust="KERNEL_ID" (64 characters) for one kernel, or trust="receipt.json", '
    'signers="allowed_signers" for the kernel of a receipt that is signed with a key you know.'
)
_numbers = itertools.count()


def load_best(
    task: str,
    *,
    device: str | None = None,
    lake: str | None = None,
    trust: str | Path | Sequence[str | Path] = (),
    signers: str | Path | None = None,
) -> Callable[..., Any]:
    """Return the fastest kernels of a task as one function, which chooses by device and shape.

    The kernels run in this process, without the sandbox. Calls that differ from those that were
    judged run the task's own code, as do calls with a gradient or autocast.
    Inputs come first, and the task's parameters by name: `norm(x, residual, weight=weight)`.

    Args:
        task: Its name, such as level1/9, or its id.
        device: Device model, such as H200; None is every device with a winner.
        lake: Folder or URL of the lake; None means FLYWHEEL_LAKE, else ./lake.
        trust: Whose code may run: a tag of the lake, for kernels that the lake itself judged;
            the whole id of a kernel; or the file of a signed receipt. Several in a list.
        signers: File of allowed signers of receipts, as ssh-keygen reads it.

    Raises:
        UnknownName: no such task, device or tag.
        FlywheelError: nothing is trusted, no kernel has won, or the winner is not trusted.
    """
    from store.winners.package import name_function, write_package
    from store.winners.selection import read_winners

    named = [trust] if isinstance(trust, str | Path) else list(trust)
    if not named:
        raise FlywheelError("a winner runs in this process, without the sandbox", _HOW_TO_TRUST)
    kernels = [str(one) for one in named if _KERNEL_ID.fullmatch(str(one))]
    files = [Path(one) for one in named if Path(one).suffix == ".json"]
    tags = [str(one) for one in named if str(one) not in kernels and Path(one) not in files]
    kernels += [_find_signed_kernel(file, signers) for file in files]
    if len(tags) > 1:
        raise FlywheelError(f"trust names several tags: {', '.join(tags)}", "Name one of them.")
    with store.open(lake) as newest:
        known = [str(row["name"]) for row in newest.run("SELECT name FROM current_tags").rows()]
    for tag in tags:
        if tag not in known:
            if re.fullmatch(r"[0-9a-f]{7,63}", tag):
                raise FlywheelError(f"{tag} is no tag, and no whole id of a kernel", _HOW_TO_TRUST)
            raise UnknownName.among("tag", tag, known)
    with store.open(lake, tags[0] if tags else None) as opened:
        row = store.find_task(opened, task)
        found = read_winners(
            opened, licensed=False, task=row["task_id"], kernels=kernels, own=bool(tags)
        )
        devices = [one["device"] for winners in found.tasks for one in winners.rows]
        chosen = None if device is None else choose_device(device, devices)
        rows = [
            one
            for winners in found.tasks
            for one in winners.rows
            if chosen in (None, one["device"])
        ]
        if not rows:
            anybody = read_winners(opened, licensed=False, task=row["task_id"])
            raise _explain(row["name"], device, anybody)
        winners = replace(found.tasks[0], rows=rows)
    folder = Path(tempfile.mkdtemp(prefix="flywheel-winner-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_package(winners, folder)
    return getattr(import_package(folder), name_function(winners.task))


def import_package(folder: Path) -> Any:
    """Import the package of a task's winners, which runs the task's own code in this process."""
    name = f"_flywheel_winner_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _find_signed_kernel(file: Path, signers: str | Path | None) -> str:
    from store.receipts.check import read_file, verify

    if signers is None:
        raise FlywheelError(
            f"{file} may be anybody's",
            "signers= names a file with the keys that you trust: one NAME KEYTYPE KEY a line.",
        )
    receipt = verify(read_file(file), allowed_signers=Path(signers)).receipt
    return str(receipt["kernel"]["kernel_id"])


def _explain(task: str, device: str | None, anybody: Selection) -> FlywheelError:
    """Return why no trusted kernel has won."""
    won = [one for winners in anybody.tasks for one in winners.rows]
    chosen = None if device is None else choose_device(device, [one["device"] for one in won])
    here = [one for one in won if chosen in (None, one["device"])]
    if here:
        listed = "; ".join(
            f"on {one['device']} it is {one['kernel_id']}"
            + (f", whose verdict was pulled from {one['origin']}" if one["origin"] else "")
            for one in here
        )
        return FlywheelError(f"trust does not cover the winner of {task}: {listed}", _HOW_TO_TRUST)
    if won:
        devices = sorted({str(one["device"]) for one in won})
        return UnknownName.among(f"device with a winner of {task}", str(device), devices)
    near = "; ".join(
        f"on {one['device']}, kernel {one['kernel_id'][:12]} is {one['speedup']:.2f} times as fast "
        f"as eager: {one['left_out']}"
        for one in anybody.without
    )
    return FlywheelError(
        f"no kernel has won at {task}" + (f": {near}" if near else ""),
        "A winner's speedup over eager has a lower bound above 1; `evaluators run` judges kernels.",
    )
