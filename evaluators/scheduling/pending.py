"""The pending kernels of a lake, in batches of leased cases, so that runs share them.

    find_pending ─▶ lease a batch ─▶ what has been judged since? ─▶ cases ─▶ commit ─▶ release

Any number of runs, on any number of hosts, may judge the kernels of one lake at the same time. Each
takes leases on a few kernels at a time and keeps them until its verdicts are committed. Leases of a
run that dies end with it, and the others take over its kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import store
from evaluators.device.identity import compute_class_id, select_alike
from evaluators.judging.case import Case
from evaluators.scheduling.cases import read_cases
from evaluators.scheduling.contract import Evaluator, name_of
from store import read_sql
from store.errors import UnknownName
from store.ids import content_id
from store.lake.limits import QueryLimits

if TYPE_CHECKING:
    import pyarrow as pa

    from store.lake.leases import Leases


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


CASES_PER_JUDGE = 16
"""Cases that a run leases at a time, for each of its judges: some minutes of work."""


def name_verdict(evaluator: Evaluator, device: Mapping[str, Any], case: Case) -> str:
    """Return the id of the next verdict on a case: the same for every run that would give it.

    Runs on alike devices would give the same one.
    """
    return content_id(
        "verdict",
        name_of(evaluator),
        str(evaluator.VERSION),
        case.policy or "",
        *([case.protocol] if case.protocol == "training" else []),
        compute_class_id(device),
        *(case.kernel_id, case.task_id, case.workload_id),
        str(case.earlier),
    )


class LeasedCases:
    """The pending kernels of one run."""

    def __init__(
        self,
        writer: store.Writer,
        leases: Leases,
        evaluator: Evaluator,
        devices: Sequence[dict[str, Any]],
        selection: Selection,
        batch: int,
    ) -> None:
        """Find what is pending.

        Args:
            writer: Of the lake.
            leases: Of the lake.
            evaluator: The evaluator.
            devices: Rows of devices of one kind.
            selection: Which kernels; its limit bounds what this run takes.
            batch: Cases to lease at a time.
        """
        self._writer, self._leases, self._batch = writer, leases, batch
        self._evaluator, self._devices, self._device = evaluator, devices, devices[0]
        self._selection = replace(selection, limit=None)
        self._finished: list[str] = []
        """Leases on cases whose verdicts are spooled."""
        writer.flush()
        self.origin = self._read_pending()
        """Lake and snapshot of what is pending at first."""
        most = self._pending.num_rows
        self._left = most if selection.limit is None else min(selection.limit, most)
        self.total = self._left
        """Cases that this run would judge if no other run takes any."""
        self.left_to_others = 0
        """Cases that other runs are judging; known once every batch is read."""

    def _read_pending(self) -> tuple[str, int]:
        with self._writer.reader() as lake:
            self._pending = find_pending(lake, self._evaluator, self._devices, self._selection)
            return lake.lake_id, lake.snapshot

    def read_batches(self) -> Iterator[list[Case]]:
        """Yield cases until none is left that this run may judge."""
        import pyarrow as pa

        positions = list(range(self._pending.num_rows))
        # What another run holds at first may be free at the end, if that run is interrupted.
        for _ in range(2):
            skipped: list[int] = []
            while positions and self._left:
                chosen, positions = positions[: self._batch], positions[self._batch :]
                cases = self._lease(chosen, skipped)
                self._left -= len(cases)
                if cases:
                    yield cases
            positions = []
            if skipped and self._left:  # those of them that are still pending now
                names = ("kernel_id", "task_id", "workload_id", "policy")
                before = self._pending.select(names).take(pa.array(skipped, pa.int64()))
                waiting = {tuple(row.values()) for row in before.to_pylist()}
                self.commit()
                self._read_pending()
                rows = self._pending.select(names).to_pylist()
                positions = [at for at, row in enumerate(rows) if tuple(row.values()) in waiting]
        self.left_to_others = len(positions)

    def finish(self, case: Case) -> None:
        """Note that the verdict on a case is spooled."""
        self._finished.append(self._name(case))

    def release(self, case: Case) -> None:
        """Leave a case to other runs without a verdict."""
        self._leases.release([self._name(case)])

    def commit(self) -> int:
        """Commit the spooled verdicts and release their cases; return the newest snapshot."""
        snapshot = self._writer.flush()
        self._leases.release(self._finished)
        self._finished.clear()
        return snapshot

    def _lease(self, chosen: Sequence[int], skipped: list[int]) -> list[Case]:
        """Return the cases of these positions that no other run holds or has judged."""
        import pyarrow as pa

        rows = self._pending.take(pa.array(chosen, pa.int64()))
        names = [self._name(Case.read(row)) for row in rows.to_pylist()]
        taken = self._leases.take(names)
        skipped += [at for at, name in zip(chosen, names, strict=True) if name not in taken]
        mine = rows.filter(pa.array([name in taken for name in names], pa.bool_()))
        # A run commits its verdicts before it releases their cases, so they are all visible now.
        self.commit()
        with self._writer.reader() as lake:
            read = list(read_cases(lake, mine, self._device["name"]))
        # An evaluation that was added since gives a case another number of earlier ones, and so
        # another name. It may be one that counts for nothing here.
        cases = [case for case in read if self._name(case) in taken][: self._left]
        kept = {self._name(case) for case in cases}
        changed = taken - kept if len(cases) < self._left else set[str]()
        skipped += [at for at, name in zip(chosen, names, strict=True) if name in changed]
        self._leases.release(taken - kept)
        return cases

    def _name(self, case: Case) -> str:
        return name_verdict(self._evaluator, self._device, case)
