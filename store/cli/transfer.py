"""`store import` and `store export`: one command for each importer and exporter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from store.cli.options import COMMON, INCLUDING, At, Include
from store.commandline import echo
from store.commandline.help import CommandApp
from store.commandline.members import Common, Format, Group, Member, annotate_config

import_app = CommandApp(
    name="import",
    help="""Import kernels, verdicts and published figures.

    Examples:
      store import starter
      store import kernels ./my-kernels
      store import kernelbench ./KernelBench --tag kernelbench
      store import detect ./downloads/submissions.parquet
    """,
)
export_app = CommandApp(
    name="export",
    help="""Export kernels or tables to the formats of other tools. Private columns are left out.

    Examples:
      store export parquet ./tables
      store export kernelbench-run ./runs/mine --at v1
    """,
)


def add_to(app: App) -> None:
    """Add these commands to `store`."""
    app.command(import_app)
    app.command(export_app)


@import_app.command
def detect(path: Path, /, *, format: Format = "table", common: Common = COMMON) -> None:
    """Print the importer that fits a file or folder; nothing is imported.

    Parameters
    ----------
    path
        File or folder to look at.
    format
        Format of the answer.
    """
    import pyarrow as pa

    from store.commandline import display
    from store.importers.reading import detection

    one = detection.choose(path, detection.detect(path))
    row = {"importer": one.importer, "recognizes": one.seen}
    display.write_rows(pa.Table.from_pylist([row]), format)


def groups() -> tuple[Group, Group]:
    """Return the two commands that have a subcommand for each member."""
    return (
        Group(import_app, "store.importers", _import_command),
        Group(export_app, "store.exporters", _export_command),
    )


def _import_command(importer: Member) -> Callable[..., None]:
    module = importer.load()

    def command(
        path: Path | None = None,
        /,
        *,
        config: Any = None,
        tag: str | None = None,
        max_file_gb: float = 1.0,
        max_total_gb: float = 16.0,
        common: Common = COMMON,
    ) -> None:
        from store.foreign import parquet
        from store.importers.reading import run as importing

        limits = parquet.ParquetLimits(file_gb=max_file_gb, total_gb=max_total_gb)
        with parquet.use_limits(limits):
            importing.run_command(importer, module, path, config or module.Config(), tag, common)

    command.__annotations__ |= {
        "path": Annotated[Path | None, Parameter(help="File or folder to read.")],
        "config": annotate_config(module.Config),
        "tag": Annotated[str | None, Parameter(help="Name the snapshot after the import.")],
        "max_file_gb": Annotated[
            float, Parameter(help="Refuse a Parquet file that decodes to more than N GB.")
        ],
        "max_total_gb": Annotated[
            float, Parameter(help="Refuse Parquet files that decode to more than N GB together.")
        ],
        "common": Common,
    }
    return command


def _export_command(exporter: Member) -> Callable[..., None]:
    module = exporter.load()

    def command(
        folder: Path,
        /,
        *,
        config: Any = None,
        at: At = None,
        including: Include = INCLUDING,
        common: Common = COMMON,
    ) -> None:
        import store
        from store.exporters.writing import run as exporting

        with store.open(common.lake, at, include=including.views()) as lake:
            counts = exporting.export(lake, module, folder, config or module.Config())
            echo.print_result(exporting.summarize(exporter, counts, folder, lake.snapshot))

    command.__annotations__ |= {
        "folder": Annotated[
            Path, Parameter(help="Folder to write; a repeated export replaces it.")
        ],
        "config": annotate_config(module.Config),
        "at": At,
        "including": Include,
        "common": Common,
    }
    return command
