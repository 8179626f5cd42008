"""The front matter of a dataset's card, which the Hub's viewer reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_DTYPES = {"double": "float64", "float": "float32", "date32[day]": "date32"}


def name_size(rows: int) -> str:
    """Return the Hub's word for a number of rows."""
    return next((name for limit, name in _SIZES if rows < limit), "n>1M")


def describe_features(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return an Arrow schema as the features of a card, in the form that `datasets` reads."""
    return [{"name": field.name} | _describe_feature(field.type) for field in schema]


def _describe_feature(kind: pa.DataType) -> dict[str, Any]:
    import pyarrow.types as types

    if types.is_list(kind):
        inner = _describe_feature(kind.value_type)
        return {"list": inner.get("struct") or inner["dtype"]}
    if types.is_struct(kind):
        return {"struct": [{"name": one.name} | _describe_feature(one.type) for one in kind]}
    return {"dtype": _DTYPES.get(str(kind), str(kind))}
