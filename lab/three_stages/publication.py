"""Results without the folders and names of the machine that made them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def mask_names(folder: Path, names: Mapping[str, str]) -> None:
    """Remove folders and the names of machines and GPUs from results before publication.

    Args:
        folder: The results.
        names: Texts and their replacements.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for file in folder.rglob("*"):
        if file.suffix in (".csv", ".html", ".md", ".txt"):
            text = file.read_text("utf-8")
            for name, other in names.items():
                text = text.replace(name, other).replace(name.replace("_", r"\_"), other)
            file.write_text(text, "utf-8")
        elif file.suffix == ".parquet":
            table = pq.read_table(file)
            for place, column in enumerate(table.schema):
                if column.type not in (pa.string(), pa.large_string()):
                    continue
                texts = table.column(place)
                for name, other in names.items():
                    texts = pc.replace_substring(texts, pattern=name, replacement=other)
                if column.name in ("host", "gpu_uuid"):
                    texts = pa.nulls(table.num_rows, column.type)
                table = table.set_column(place, column, texts)
            # A dictionary of samples, which hardly repeat, would add to the size.
            pq.write_table(
                table, file, compression="zstd", compression_level=19, use_dictionary=False
            )
