"""The answer to one query, within its limits, in the form that the caller requests."""

from __future__ import annotations

import math
import re
import shutil
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import duckdb
import pyarrow as pa

from store import faults
from store.bounds import GB, Bounds, QueryLimits
from store.commandline import display
from store.commandline.display import list_rows
from store.commandline.escape import encode_json
from store.errors import FlywheelError
from store.lake.location import Location
from store.lake.sql_files import find_key_columns, name_query
from store.schema.sql_text import quote_values

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

BATCH_ROWS = 10_000
_TEXT_IN_ARROW = re.compile(r"(?<![\w\"'])(INTERVAL|UHUGEINT|BIT|TIME WITH TIME ZONE)(?![\w\"'])")
"""Types of DuckDB that Arrow lacks, or stores without a part of the value; they become texts."""
_DAMAGED = "Run `store check --full`, which names every damaged data file and says what to do."
Parameters: TypeAlias = "Sequence[object] | Mapping[str, object] | None"


class Result:
    """The answer to one query, computed when a caller requests it in some form.

    Of several columns with one name, the second and later ones get a number, as in DuckDB's tables:
    `name`, `name_1`.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        location: Location,
        query: str,
        parameters: Parameters,
        *,
        bounds: Bounds,
        limits: QueryLimits | None = None,
    ) -> None:
        self._connection = connection
        self._location = location
        self._query = query
        self._parameters = parameters
        self._bounds = bounds
        self._limits = limits

    def arrow(self) -> pa.Table:
        """Return the whole answer as an Arrow table, or as many rows as the limits allow."""
        if self._limits is not None:
            return self._read(self._limits)[0]
        with self._ask():
            rows = self._execute().to_arrow_table()
        return rows.rename_columns(_number_repeated(rows.column_names))

    def write(self, file: Path) -> bool:
        """Write the answer as an Arrow stream; return whether rows beyond the limit were cut.

        Batches go to the file as DuckDB produces them, so that a large answer needs little memory.
        """
        was_cut = False
        with self._ask():
            answer = self._stream()
            # A new file, because the reader may still have an earlier answer mapped.
            file.unlink(missing_ok=True)
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, answer.schema) as out:
                for batch, is_last in _limit_batches(
                    answer, self._limits or QueryLimits(max_rows=0)
                ):
                    out.write_batch(batch)
                    was_cut = is_last
        return was_cut

    def reader(self, rows: int = 10_000) -> pa.RecordBatchReader:
        """Return the answer as a stream of batches of at most `rows` rows.

        Read it to its end before the next query of the same lake.
        """
        held = ExitStack()
        held.enter_context(self._location.hold_inlined_rows())
        with translate_errors(self._bounds, self._query):
            answer = self._stream(rows)

        def read() -> Iterator[pa.RecordBatch]:
            with held:
                yield from answer

        return pa.RecordBatchReader.from_batches(answer.schema, read())

    def polars(self) -> pl.DataFrame:
        """Return the whole answer as a Polars frame."""
        import polars as pl

        return cast("pl.DataFrame", pl.from_arrow(self.arrow()))

    def pandas(self) -> pd.DataFrame:
        """Return the whole answer as a pandas frame (pandas must be installed)."""
        return self.arrow().to_pandas()

    def rows(self) -> list[dict[str, Any]]:
        """Return the whole answer as Python dictionaries; for small answers."""
        return list_rows(self.arrow())

    def one(self) -> dict[str, Any] | None:
        """Return the first row, or None where there is none."""
        return next(iter(self.rows()), None)

    def __repr__(self) -> str:
        """Return the first rows as a table that fits the terminal."""
        rows, notes = self._read_first_rows()
        keys = find_key_columns(self._query, rows.column_names)
        width = shutil.get_terminal_size().columns
        return "\n".join([display.render_text(rows, keys, width), *notes])

    def _repr_html_(self) -> str:
        """Return the first rows as an HTML table, which notebooks show."""
        rows, notes = self._read_first_rows()
        return "".join([display.render_html(rows), *(f"<p>{note}</p>" for note in notes)])

    def _read_first_rows(self) -> tuple[pa.Table, list[str]]:
        limits = self._limits or QueryLimits()
        most = min(limits.max_rows or display.SHOWN_ROWS, display.SHOWN_ROWS)
        rows, is_cut = self._read(replace(limits, max_rows=most))
        return rows, [f"the first {most} rows"] if is_cut else []

    def _read(self, limits: QueryLimits) -> tuple[pa.Table, bool]:
        """Return the rows within the limits, and whether others were cut."""
        with self._ask():
            answer = self._stream()
            parts = list(_limit_batches(answer, limits))
        rows = pa.Table.from_batches([batch for batch, _ in parts], answer.schema)
        return rows, any(is_cut for _, is_cut in parts)

    @contextmanager
    def _ask(self) -> Generator[None]:
        with (
            translate_errors(self._bounds, self._query),
            interrupt_after(self._connection.interrupt, self._limits, self._query),
            self._location.hold_inlined_rows(),
        ):
            yield

    def _stream(self, rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Return the answer with a name of its own for each column."""
        answer = self._execute().to_arrow_reader(rows)
        names = _number_repeated(answer.schema.names)
        if names == answer.schema.names:
            return answer
        pairs = zip(answer.schema, names, strict=True)
        schema = pa.schema([field.with_name(name) for field, name in pairs])
        batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in answer)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _execute(self) -> duckdb.DuckDBPyConnection:
        answer = self._run(self._query)
        kinds = [(str(name), str(kind)) for name, kind, *_ in answer.description or ()]
        if not any(_TEXT_IN_ARROW.search(kind) for _, kind in kinds):
            return answer
        columns = ", ".join(
            'CAST(#{} AS {}) AS "{}"'.format(
                place, _TEXT_IN_ARROW.sub("VARCHAR", kind), name.replace('"', '""')
            )
            for place, (name, kind) in enumerate(kinds, start=1)
        )
        return self._run(f"SELECT {columns} FROM ({self._query.rstrip().rstrip(';')}\n)")

    def _run(self, query: str) -> duckdb.DuckDBPyConnection:
        # With constants, DuckDB can skip whole files; a prepared plan cannot.
        given = None if "pandas" in sys.modules else _quote_parameters(self._parameters)
        if not given:
            return self._connection.execute(query, self._parameters)
        self._connection.execute(f"PREPARE _question AS {query}")
        return self._connection.execute(f"EXECUTE _question({given})")


@contextmanager
def interrupt_after(
    interrupt: Callable[[], None], limits: QueryLimits | None, query: str = ""
) -> Generator[None]:
    """Interrupt a connection when the block, which asks a query, exceeds the time limit."""
    if limits is None:
        yield
        return
    over = threading.Event()

    def stop() -> None:
        over.set()
        interrupt()

    timer = threading.Timer(limits.timeout, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if over.is_set():
            raise limits.timeout_error(name_query(query)) from error
        raise
    finally:
        timer.cancel()


@contextmanager
def translate_errors(bounds: Bounds, query: str = "") -> Generator[None]:
    """Translate DuckDB's errors into FlywheelError, which the shell prints without a traceback."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        text = str(error)
        excess = bounds.explain(error, name_query(query))
        if excess is not None:
            raise excess from error
        hint = None
        if isinstance(error, (duckdb.IOException, duckdb.InvalidInputException)):
            hint = _DAMAGED if "parquet" in text.lower() else None
        if hint is None or faults.classify(error) not in ("missing", "unusable"):
            fault = faults.explain(error, "the data files of the lake")
            if fault is not None:
                raise fault from error
        raise FlywheelError(text, hint) from error


def _number_repeated(names: Sequence[str]) -> list[str]:
    """Return names that differ from each other.

    >>> _number_repeated(["a", "a", "b", "a_1"])
    ['a', 'a_1', 'b', 'a_1_1']
    """
    found: list[str] = []
    for name in names:
        own, number = name, 0
        while own in found:
            number += 1
            own = f"{name}_{number}"
        found.append(own)
    return found


def _limit_batches(
    answer: pa.RecordBatchReader, limits: QueryLimits
) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield batches within the limits, each with whether rows after it were cut off."""
    rows = size = characters = 0
    for whole in answer:
        batch = whole.slice(0, limits.max_rows - rows) if limits.max_rows else whole
        size += batch.nbytes
        if size > limits.max_result_gb * GB:
            raise FlywheelError(
                f"the answer is larger than {limits.max_result_gb:g} GB",
                "Select fewer columns or rows, or raise --max-result-gb.",
            )
        if limits.max_chars:
            fitting, characters = _count_fitting(batch, characters, limits)
            batch = batch.slice(0, fitting)
        rows += batch.num_rows
        is_cut = batch.num_rows < whole.num_rows
        yield batch, is_cut
        if is_cut:
            return


def _count_fitting(batch: pa.RecordBatch, characters: int, limits: QueryLimits) -> tuple[int, int]:
    """Return how many rows of a batch fit, and the characters of the answer up to there."""
    for row in range(batch.num_rows):
        [values] = list_rows(batch.slice(row, 1))
        length = len(encode_json(values, indent=None))
        if length > limits.max_chars:
            if characters or row:
                return row, characters
            raise FlywheelError(
                f"the first row has {length} characters, and an answer may have {limits.max_chars}",
                "Select fewer columns, or part of a text, such as left(code, 10000).",
            )
        if characters + length > limits.max_chars:
            return row, characters
        characters += length
    return batch.num_rows, characters


def _quote_parameters(parameters: Parameters) -> str | None:
    """Return parameters as SQL literals of the types that DuckDB would give them.

    Returns None if there are none, or if one has no plain literal. For parameters that are Python
    objects, DuckDB imports pandas if it is installed, which takes half a second.
    """
    if not parameters:
        return None
    named = isinstance(parameters, Mapping)
    texts: list[str] = []
    for name, value in parameters.items() if named else enumerate(parameters):
        if value is None:
            text = "NULL"
        elif isinstance(value, bool | int):
            text = str(value)
        elif isinstance(value, float) and math.isfinite(value):
            text = f"{value!r}::DOUBLE"
        elif isinstance(value, str) and "\0" not in value:
            text = quote_values((value,))
        else:
            return None
        if named and not str(name).isidentifier():
            return None
        texts.append(f'"{name}" := {text}' if named else text)
    return ", ".join(texts)
