"""The facts about attempts that reward rules read from the lake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines import query
from store import read_sql
from store.errors import UnknownName
from store.schema.baselines import list_baselines
from store.schema.sql_text import quote_values
from trainers.rewarding.terms import Terms

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    import store

    Floats = npt.NDArray[np.float64]
    Whole = npt.NDArray[np.int64]


_FEW = 512
"""Up to this number of attempts, the query names their kernels: those of a step, not of a run."""


def read_inputs(lake: store.Lake, terms: Terms, generation_ids: Sequence[str]) -> pa.Table:
    """Return the facts that the lake has about the attempts, in their order.

    Raises UnknownName if the lake lacks an attempt.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(generation_ids, pa.string())
    named = pa.table({"generation_id": wanted})
    device = terms.device
    if device is None:
        devices = query(lake, read_sql(__file__, "reward_device"), wanted=named).to_pylist()
        device = str(devices[0]["device"]) if devices else None
    kernels = None
    if len(wanted) <= _FEW:
        [row] = query(lake, read_sql(__file__, "wanted_kernels"), wanted=named).to_pylist()
        kernels = row["kernels"]
    asked = {
        "device": device,
        "clock": terms.clock,
        "kernels": kernels,
        "include_nonequivalent": terms.include_nonequivalent,
    }
    rows = query(lake, _read_inputs_sql(), asked, wanted=named).combine_chunks()
    places = pc.index_in(wanted, rows["generation_id"].combine_chunks())
    missing = wanted.filter(pc.is_null(places))
    if len(missing):
        raise UnknownName(
            f"snapshot {lake.snapshot} holds no generation {missing[0].as_py()!a}",
            f"{len(missing)} of {len(wanted)} are not there: append them before they are scored.",
        )
    return rows.take(pa.array(np.asarray(places), pa.int64()))


def _read_inputs_sql() -> str:
    baselines = quote_values(list_baselines())
    return read_sql(__file__, "reward_inputs").replace("($baselines)", f"({baselines})")
