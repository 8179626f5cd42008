"""Runs an exporter, and selects what exporters write: tables, or the kernels of one suite."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.commandline.members import AuthorOption
from store.commandline.outputs import write_folder
from store.dossier.pages import find_run
from store.errors import ExportRefused, UnknownName
from store.lake.sql_files import list_views, read_sql
from store.schema.sql_text import quote_names

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa

    from store.commandline.members import Member
    from store.lake.reader import Lake

BATCH_ROWS = 10_000
ROLLOUT_ROWS = 1_000
"""Rows of a row group of rollouts, which have lists of thousands of tokens."""


def export(lake: Lake, module: ModuleType, target: Path, config: Any) -> dict[str, int]:
    """Write a lake's snapshot to a folder with one exporter; return a count for each kind.

    A module of store/exporters defines `Config` with its options, and `write`, which writes to an
    empty folder. A folder that the same exporter has written is replaced.

    Raises ExportRefused if the folder has something else, it cannot be made, or there is nothing to
    write.
    """
    name = module.__name__.rpartition(".")[2].replace("_", "-")
    with write_folder(target, f"store export {name}") as folder:
        return module.write(lake, folder, config)


def summarize(exporter: Member, counts: dict[str, int], target: Path, snapshot: int) -> str:
    """Return the result of an export in one line."""
    names = {what: re.sub("ies$", "y", what).removesuffix("s") for what in counts}
    written = ", ".join(
        f"{count} {names[what] if count == 1 else what}" for what, count in counts.items()
    )
    return f"{exporter.name}: {written} → {target} (snapshot {snapshot})"


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Options of exporters that write tables."""

    tables: tuple[str, ...] = ()
    """Tables and views to write (default: every table)."""


def stream_tables(lake: Lake, config: Tables) -> Iterator[tuple[str, pa.RecordBatchReader]]:
    """Yield each table that has rows, in the order of its key, as a stream of batches.

    Private columns are left out. Read each stream to its end before the next one.

    Raises UnknownName: unknown table or view.
    """
    known = {**lake.catalog.tables, **dict.fromkeys(list_views())}
    for name in config.tables:
        if name not in known:
            raise UnknownName.among("table or view", name, list(known))
    for name in config.tables or tuple(lake.catalog.tables):
        table = lake.catalog.tables.get(name)
        shown, order = "*", ""
        if table is not None:
            kept = [one.name for one in table.columns.values() if one.sensitivity != "private"]
            shown, order = quote_names(tuple(kept)), f" ORDER BY {quote_names(table.key)}"
        if lake.run(f"SELECT 1 AS one FROM {name} LIMIT 1").one() is not None:
            yield name, lake.run(f"SELECT {shown} FROM {name}{order}").reader(BATCH_ROWS)


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """Options of exporters that write what runs have sampled."""

    run: str | None = None
    """Write only the rows of this run: its name, or the first characters of its id."""


def write_rollouts(lake: Lake, folder: Path, config: OfRun, columns: str) -> dict[str, int]:
    """Write train.parquet with the rollouts that may leave for training.

    Args:
        lake: Where they are.
        folder: Where to write.
        config: Which of them.
        columns: SQL that selects the columns of a trainer from `rollouts`.

    Raises ExportRefused if there are none.
    """
    import pyarrow.parquet as pq

    run = {"run": None if config.run is None else find_run(lake, config.run)}
    [stored] = lake.run(
        "SELECT count(*) AS n FROM rollout_tokens WHERE $run IS NULL OR run_id = $run", run
    ).rows()
    rollouts = read_sql(__file__, "rollouts")
    stream = lake.run(f"WITH rollouts AS (\n{rollouts}\n)\n{columns}", run).reader(ROLLOUT_ROWS)
    written = 0
    with pq.ParquetWriter(folder / "train.parquet", stream.schema, compression="zstd") as sink:
        for batch in stream:
            sink.write_batch(batch)
            written += batch.num_rows
    if not written:
        raise ExportRefused(
            f"none of {stored['n']:,} rollouts with tokens may leave"
            if stored["n"]
            else "there are no rollouts with tokens",
            "Test tasks, withheld kernels and rollouts without the ids or the text of their prompt "
            "stay."
            if stored["n"]
            else "`store.run` logs rollouts with their token ids.",
        )
    return {"rollouts": written, "left out": stored["n"] - written}


@dataclass(frozen=True, kw_only=True)
class Which:
    """Options of exporters that write kernels."""

    suite: str = "kernelbench"
    """Suite of the tasks."""
    suite_revision: str | None = None
    """Revision of the suite; required if the lake has several."""
    device: str | None = None
    """Write the verdicts and times of this device (default: the device with most verdicts)."""
    policy: AuthorOption | None = None
    """Id or name of the author of the kernels (default: all)."""


def read_attempts(lake: Lake, which: Which) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the device, and one row per task and kernel (sql/attempts.sql).

    Raises:
        UnknownName: unknown suite, revision or device.
        ExportRefused: several revisions, or no kernel.
    """
    revision = find_revision(lake, which)
    device = which.device
    if device is None:
        most = lake.run(
            "SELECT device FROM outcomes GROUP BY device ORDER BY count(*) DESC, device LIMIT 1"
        ).one()
        device = None if most is None else str(most["device"])
    else:
        require_device(lake, device)
    rows = lake.run(
        read_sql(__file__, "attempts"),
        {
            "suite": which.suite,
            "suite_revision": revision,
            "device": device,
            "policy": which.policy,
        },
    ).rows()
    if not rows:
        by = f" by {which.policy}" if which.policy else ""
        raise ExportRefused(
            f"no kernel of one Python file{by} for {which.suite} {revision}",
            "`store export parquet` and `jsonl` write every kernel.",
        )
    return device, rows


def require_device(lake: Lake, device: str) -> None:
    """Raise UnknownName if the lake has no device of this name."""
    known = [str(row["name"]) for row in lake.run("SELECT DISTINCT name FROM devices").rows()]
    if device not in known:
        raise UnknownName.among("device", device, known)


def find_revision(lake: Lake, which: Which) -> str:
    """Return the revision of the options, or the only one; raises like `read_attempts`."""
    labels = lake.run("SELECT DISTINCT suite, suite_revision FROM task_labels ORDER BY ALL").rows()
    suites = {str(row["suite"]) for row in labels}
    if which.suite not in suites:
        raise UnknownName.among("suite", which.suite, sorted(suites))
    known = [str(r["suite_revision"]) for r in labels if r["suite"] == which.suite]
    if which.suite_revision is None:
        if len(known) > 1:
            raise ExportRefused(
                f"the lake has several revisions of {which.suite}: {', '.join(known)}",
                "Add --suite-revision; revisions are never comparable.",
            )
        return known[0]
    if which.suite_revision not in known:
        raise UnknownName.among(f"revision of {which.suite}", which.suite_revision, known)
    return which.suite_revision
