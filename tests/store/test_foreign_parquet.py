"""Parquet files of strangers: what they expand to is measured before anything reads them."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import store
from store.bounds import ParquetLimits
from store.errors import FlywheelError, ImportFailed
from store.foreign import parquet
from store.importers import measured, sakana
from store.importers.reading.pieces import run_import

MB = 1 << 20


def dictionary_bomb(file: Path, texts: int, size: int) -> Path:
    """Write a file in which every row is the same long text, which is stored once."""
    column = pa.DictionaryArray.from_arrays(
        pa.array([0] * texts, pa.int32()), pa.array(["x" * size])
    )
    pq.write_table(pa.table({"code": column}), file, compression="zstd", store_schema=False)
    return file


def list_bomb(file: Path, texts: int, size: int) -> Path:
    """Write a file whose one row is a long list of the same long text."""
    values = pa.DictionaryArray.from_arrays(
        pa.array([0] * texts, pa.int32()), pa.array(["x" * size])
    )
    column = pa.ListArray.from_arrays([0, texts], values)
    pq.write_table(pa.table({"code": column}), file, compression="zstd", store_schema=False)
    return file


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("make", [dictionary_bomb, list_bomb])
def test_a_small_file_that_decodes_to_gigabytes_is_refused_outside_this_process(
    make: object, tmp_path: Path
) -> None:
    assert callable(make)
    file = make(tmp_path / "bomb.parquet", 3000, MB)
    assert file.stat().st_size < 2000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (
        parquet.use_limits(ParquetLimits(max_file_gb=0.3)),
        pytest.raises(ImportFailed, match=r"bomb\.parquet \(\d+ bytes\).*\n.*--max-file-gb"),
    ):
        parquet.check_files([file])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_limits_hold_for_each_file_and_for_all_together(tmp_path: Path) -> None:
    files = [dictionary_bomb(tmp_path / f"{n}.parquet", 10, MB) for n in range(3)]
    parquet.check_files(files)
    with parquet.use_limits(ParquetLimits(max_file_gb=0.02, max_total_gb=0.025)):
        parquet.check_files(files[:2])
        with pytest.raises(ImportFailed, match=r"2\.parquet .* all files"):
            parquet.check_files(files)
    with (
        parquet.use_limits(ParquetLimits(max_file_gb=0.005)),
        pytest.raises(ImportFailed, match=r"0\.parquet .* this file"),
    ):
        parquet.check_files(files)
    assert parquet.get_limits() == ParquetLimits()
    with pytest.raises(FlywheelError, match="above 0"):
        ParquetLimits(max_file_gb=0)


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(64) + b"PAR1", os.urandom(500)])
def test_what_is_no_parquet_is_said_to_be_none(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    file.write_bytes(data)
    with pytest.raises(ImportFailed, match="cannot be read as Parquet"):
        parquet.check_files([file])


@pytest.mark.slow
def test_importers_refuse_such_files(lake_url: str, tmp_path: Path) -> None:
    dictionary_bomb(tmp_path / "level_1.parquet", 400, MB)
    dictionary_bomb(tmp_path / "evaluations.parquet", 400, MB)
    with (
        store.writer(lake_url, author="tests") as writer,
        parquet.use_limits(ParquetLimits(max_file_gb=0.3)),
    ):
        for module in (sakana, measured):
            with pytest.raises(ImportFailed, match="bytes allowed for this file"):
                run_import(writer, module, tmp_path, module.Config())
