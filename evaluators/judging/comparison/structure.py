"""The structure of an output: nesting, counts, shapes, element types and values of other types."""

from __future__ import annotations

import cmath
import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy
import torch

from evaluators.judging.comparison.result import Comparison
from evaluators.judging.comparison.tolerance import TOLERANCE
from evaluators.memory.tensors import is_inexact, read_pending
from evaluators.memory.values import name_parts

_Part: TypeAlias = "tuple[Any, Any, Any]"
"""Place of a part in its container, what is wanted there, and what is given."""


def find_mismatch(wanted: Any, given: Any, place: str = "") -> Comparison | None:
    """Return the first difference in structure; None where the structures are the same.

    place: Where in the output they are, such as `[1]`; empty for the whole output.
    """
    mismatch, inner = _find_part(wanted, given)
    if mismatch is not None:
        if not place:
            return mismatch
        return replace(mismatch, message=f"output{place}: {mismatch.message}")
    for key, w, g in inner:
        if (found := find_mismatch(w, g, f"{place}[{key!r:.40}]")) is not None:
            return found
    return None


def _find_part(wanted: Any, given: Any) -> tuple[Comparison | None, Sequence[_Part]]:
    """Return the difference of two values but their parts, and these parts by place."""
    if isinstance(wanted, torch.Tensor):
        return _find_tensor_mismatch(wanted, given), ()
    if dataclasses.is_dataclass(wanted):
        if not dataclasses.is_dataclass(given):
            return _report_wrong_type(wanted, given), ()
        return _find_part(name_parts(wanted), name_parts(given))
    if isinstance(wanted, list | tuple):
        if not isinstance(given, list | tuple) or isinstance(given, list) != isinstance(
            wanted, list
        ):
            return _report_wrong_type(wanted, given), ()
        if len(given) != len(wanted):
            message = f"{len(given)} outputs instead of {len(wanted)}"
            return Comparison("incorrect_count", message), ()
        return None, list(zip(range(len(wanted)), wanted, given, strict=True))
    if isinstance(wanted, dict):
        if not isinstance(given, dict):
            return _report_wrong_type(wanted, given), ()
        if given.keys() != wanted.keys():
            keys = f"{sorted(map(str, given))[:8]} instead of {sorted(map(str, wanted))[:8]}"
            return Comparison("incorrect_count", f"outputs {keys}"), ()
        return None, [(key, wanted[key], given[key]) for key in wanted]
    if type(given) is not type(wanted):
        return _report_wrong_type(wanted, given), ()
    if not _is_same_value(wanted, given):
        message = f"{given!r:.80} instead of {wanted!r:.80}"
        return Comparison("incorrect_numerical", message), ()
    return None, ()


def order_keys(wanted: Any, given: Any) -> Any:
    """Return a value of the wanted structure with the keys of its dicts in the wanted order."""
    if isinstance(wanted, dict):
        return {key: order_keys(item, given[key]) for key, item in wanted.items()}
    if dataclasses.is_dataclass(wanted):
        return order_keys(name_parts(wanted), name_parts(given))
    if isinstance(wanted, list | tuple):
        return [order_keys(w, g) for w, g in zip(wanted, given, strict=True)]
    return given


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor has whole numbers or booleans, which are compared exactly."""
    return not is_inexact(tensor.dtype)


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether all elements are finite."""
    if is_whole(tensor):
        return True
    has_arithmetic = tensor.is_complex() or tensor.element_size() > 1
    return bool((tensor if has_arithmetic else tensor.float()).isfinite().all())


def _find_tensor_mismatch(wanted: torch.Tensor, given: Any) -> Comparison | None:
    if not isinstance(given, torch.Tensor):
        return _report_wrong_type(wanted, given)
    if given.shape != wanted.shape:
        sizes = f"{list(given.shape)} instead of {list(wanted.shape)}"
        return Comparison("incorrect_shape", f"shape {sizes}")
    if given.dtype != wanted.dtype:
        return Comparison("incorrect_dtype", f"{given.dtype} instead of {wanted.dtype}")
    if read_pending(given) & ~read_pending(wanted):  # eager itself may leave it to the reader
        message = (
            "an output leaves a conjugation or negation to its reader, and the task's does not"
        )
        remedy = "return what its resolve_conj() and resolve_neg() return"
        return Comparison("incorrect_type", f"{message}: {remedy}")
    return None


def _is_same_value(wanted: Any, given: Any) -> bool:
    """Whether two values of one plain type are equal.

    A float is usually read from a tensor of single precision, so it may differ as much.
    """
    if not isinstance(wanted, float | complex | numpy.floating):
        return given == wanted
    is_same = cmath.isclose(given, wanted, rel_tol=TOLERANCE[torch.float32])
    return is_same or (cmath.isnan(given) and cmath.isnan(wanted))


def _report_wrong_type(wanted: Any, given: Any) -> Comparison:
    message = f"a {type(given).__name__} instead of a {type(wanted).__name__}"
    return Comparison("incorrect_type", message)
