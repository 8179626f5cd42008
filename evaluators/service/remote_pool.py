"""The verdicts of a judge service for the kernels of a lake, in place of judges of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import store
from evaluators.scheduling.pool import Pair, Requests, Verdict
from evaluators.service.client import Client, Judgement, Kernel
from store.code.entry_points import choose_stored
from store.errors import DeviceUnavailable, FlywheelError, UnknownName
from store.ids import content_id


class RemotePool(Requests):
    """Verdicts of a judge service, whose rows it stores in a lake. Use as a context manager.

    It serves what `Pool` serves. The service may judge for another lake; the rows of its verdicts,
    with all samples, are then appended to this one, under a run of this process.
    """

    def __init__(self, lake_url: str | None, client: Client) -> None:
        """Store the settings; entering the context asks the service for its devices.

        Args:
            lake_url: Lake that holds the kernels and gets the rows.
            client: Of the service; its device class decides where kernels are judged.
        """
        super().__init__()
        self._lake_url = lake_url
        self._client = client
        self._run_id: str | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Find the service and the class of devices.

        Raises:
            LakeNotFound: no lake there.
            Unreachable: no service answers, or it refuses the token.
            DeviceUnavailable: it has no such device class, or several.
        """
        store.open(self._lake_url).close()
        with ExitStack() as stack:
            health = self._get("/v1/health")
            self._device = _choose_device(health["classes"], self._client.device_class)
            self._writer = stack.enter_context(store.writer(self._lake_url, author="evaluators"))
            with self._writer.reader() as lake:
                self._origin = (lake.lake_id, lake.snapshot)
            self._worker = stack.enter_context(ThreadPoolExecutor(1, "remote-pool"))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def device(self) -> dict[str, Any]:
        """Name and kind of the class of devices."""
        return self._device

    def _judge(self, wanted: list[Pair]) -> dict[Pair, Verdict]:
        if not wanted:
            return {}
        self._writer.flush()
        with self._writer.reader() as lake:
            kernels = _read_kernels(lake, sorted({kernel_id for kernel_id, _ in wanted}))
        judgements = self._ask([(task_id, kernels[kernel_id]) for kernel_id, task_id in wanted])
        self._store_missing([one for one in judgements if one.verdict is not None])
        return {
            pair: judgement.verdict or _make_fault(pair, judgement)
            for pair, judgement in zip(wanted, judgements, strict=True)
        }

    def _ask(self, requests: list[tuple[str, Kernel]]) -> list[Judgement]:
        async def ask() -> list[Judgement]:
            try:
                return await self._client.judge_all(requests)
            finally:
                await self._client.close()

        return asyncio.run(ask())

    def _get(self, address: str) -> dict[str, Any]:
        async def get() -> dict[str, Any]:
            try:
                return await self._client.get(address)
            finally:
                await self._client.close()

        return asyncio.run(get())

    def _store_missing(self, judgements: Sequence[Judgement]) -> None:
        """Append the rows of verdicts that this lake lacks, because the service has another one."""
        by_evaluation = {one.source["verdict"]["evaluation_id"]: one for one in judgements}
        with self._writer.reader() as lake:
            found = lake.run(
                "SELECT evaluation_id FROM evaluations WHERE evaluation_id IN"
                " (SELECT unnest($ids))",
                {"ids": list(by_evaluation)},
            )
            known = {row["evaluation_id"] for row in found.rows()}
        for evaluation_id, judgement in by_evaluation.items():
            if evaluation_id not in known:
                self._store(judgement, content_id("verdict of a service", evaluation_id))
        self._writer.flush()

    def _store(self, judgement: Judgement, bundle_id: str) -> None:
        """Spool the rows of a verdict."""
        tables = self._get(f"/v1/judgements/{judgement.id}/rows")
        run_id = self._begin_run()
        for row in (*tables["evaluations"], *tables["findings"]):
            row["run_id"] = run_id
        message = f"judged by a service {judgement.source['kernel_id'][:12]}"
        self._writer.append(tables, message, bundle_id=bundle_id, wait=False)

    def _begin_run(self) -> str:
        """Append the run that the rows belong to, with the first of them; return its id."""
        if self._run_id is None:
            run = store.make_run(
                kind="evaluation",
                name="judge service",
                config={"device": self._device["name"]},
                lake_id=self._origin[0],
                snapshot_id=self._origin[1],
            )
            record = store.record_run(self._writer, run, "evaluation begins")
            self._run_id = self._stack.enter_context(record).run_id
        return self._run_id


def _choose_device(classes: Mapping[str, Any], wanted: str | None) -> dict[str, Any]:
    """Return name and kind of the class that a client asks for. Raises DeviceUnavailable."""
    matches = [
        {"name": name, "kind": one["kind"]}
        for name, one in classes.items()
        if wanted in (None, name, one["kind"])
    ]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(sorted(classes)) or "none"
    raise DeviceUnavailable(
        f"{len(matches)} device classes of the judge service match",
        f"Name one of its classes: {known}.",
    )


def _read_kernels(lake: store.Lake, kernel_ids: list[str]) -> dict[str, Kernel]:
    """Return kernels by id.

    Raises:
        UnknownName: a kernel is not in the lake.
        FlywheelError: the service cannot take its form.
    """
    rows = lake.run(
        "SELECT * FROM kernels WHERE kernel_id IN (SELECT unnest($ids))", {"ids": kernel_ids}
    ).rows()
    kernels: dict[str, Kernel] = {}
    for row in rows:
        if row["build_flags"] or row["entry_point"] != choose_stored(row["code"]):
            raise FlywheelError(
                f"kernel {row['kernel_id'][:12]} has build flags or another entry point",
                "A judge service takes kernels with ModelNew, or with a function of a usual name "
                "(custom_kernel, run …), and need no flags.",
            )
        files = tuple((one["path"], one["code"]) for one in row["other_files"] or ())
        kernels[row["kernel_id"]] = Kernel(code=row["code"], path=row["path"], files=files)
    missing = sorted(set(kernel_ids) - set(kernels))
    if missing:
        raise UnknownName(
            f"kernel {missing[0][:12]} is not in the lake ({len(missing)} such)",
            "Append the kernel before asking for its verdict.",
        )
    return kernels


def _make_fault(pair: Pair, judgement: Judgement) -> Verdict:
    """Return the verdict of a kernel that was not judged, which gives no reward."""
    return Verdict(
        kernel_id=pair[0],
        task_id=pair[1],
        workload_id="",
        evaluation_id=None,
        device_id=None,
        status="evaluator_error",
        reason=judgement.reason,
        message=judgement.message,
        flags=(),
        speedup=None,
        speedup_low=None,
        findings=(),
        quarantined=False,
        equivalent=None,
        fresh=False,
    )
