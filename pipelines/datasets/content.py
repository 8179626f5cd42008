"""The content hash of a dataset: its texts and columns, without where they come from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

PROVENANCE = ("purpose", "lake_id", "snapshot_id", "seed", "template_hash")
"""Columns that say where a row comes from; the content hash leaves them out."""


def hash_rows(content: Any, table: pa.Table, digests: list[list[str]]) -> None:
    """Feed rows to a content hash.

    Args:
        content: A hashlib object.
        table: The rows in their final columns.
        digests: For each row, `prompt_id` of each column of messages, in order.
    """
    plain = [
        field.name
        for field in table.schema
        if field.name not in PROVENANCE and not has_messages(field.type)
    ]
    for row, digest in zip(table.select(plain).to_pylist(), digests, strict=True):
        content.update(json.dumps([digest, row], sort_keys=True).encode())


def has_messages(kind: pa.DataType) -> bool:
    """Whether a column of this type holds messages."""
    import pyarrow.types as types

    return types.is_list(kind) and types.is_struct(kind.value_type)
