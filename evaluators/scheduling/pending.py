"""Find the kernels that lack a verdict of an evaluator version on some devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import store
from evaluators.device.identity import select_alike
from evaluators.scheduling.contract import Evaluator, name_of
from store import read_sql
from store.errors import UnknownName
from store.lake.limits import QueryLimits

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which of the pending kernels to judge."""

    suite: str | None = None
    """Suite of the tasks; None for every suite."""
    kernel: str | None = None
    """Kernel id or the start of one."""
    where: str | None = None
    """SQL over the columns of pending_kernels.sql."""
    contended: bool = False
    """Also those whose every session shared its host with other work."""
    policies: Sequence[str | None] = (None,)
    """Policies by which a verdict is wanted; None for any. They do not differ on a processor, where
    only the first one counts."""
    shapes: Sequence[str] = ()
    """Names of other shapes; a correct kernel that was not tried at all of them is judged again."""
    protocol: str | None = None
    """Protocol of the verdicts; a full one serves those who want one by training as well."""
    limit: int | None = None
    """Number of verdicts."""


def find_pending(
    lake: store.Lake,
    evaluator: Evaluator,
    devices: Sequence[dict[str, Any]],
    selection: Selection,
) -> pa.Table:
    """Return the kernels and tasks that this evaluator version has not judged, in judging order.

    There is one row for each policy by which a verdict is missing.

    Args:
        lake: Where to look.
        evaluator: The evaluator.
        devices: Rows of devices of one kind; a verdict on any of them, or on one alike, is enough.
        selection: Which of them to return.

    Raises:
        UnknownName: the selected kernel or suite does not exist.
        UnsafeSQL: the selection's SQL is not one plain condition.
    """
    if selection.suite is not None:
        suites = [row["suite"] for row in lake.run("SELECT DISTINCT suite FROM task_labels").rows()]
        if selection.suite not in suites:
            raise UnknownName.among("suite", selection.suite, suites)
    kernel_id = None if selection.kernel is None else store.find_kernel(lake, selection.kernel)
    query = read_sql(__file__, "pending_kernels")
    on_gpu = devices[0]["kind"] == "cuda"
    parameters = {
        "evaluator": name_of(evaluator),
        "version": evaluator.VERSION,
        "device_ids": select_alike(lake.run("FROM devices").rows(), devices),
        "device": devices[0]["name"],
        "device_kind": devices[0]["kind"],
        "suite": selection.suite,
        "kernel": kernel_id,
        "contended": selection.contended,
        "protocol": selection.protocol,
        "shapes": list(selection.shapes),
        "policies": list(selection.policies[: None if on_gpu else 1]),
        "limit": selection.limit,
    }
    if selection.where is None:
        return lake.run(f"{query}\nLIMIT $limit", parameters).arrow()
    # What the user writes goes through the guard, together with our own text around it.
    guarded = f"WITH pending AS ({query}) FROM pending WHERE ({selection.where}\n) LIMIT $limit"
    return lake.sql(guarded, parameters, QueryLimits(max_rows=0)).arrow()
