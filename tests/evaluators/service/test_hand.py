"""The cases that a worker of the judge service has in hand."""

from __future__ import annotations

from typing import Any

from evaluators.service.hand import Hand


def claim(lease: str) -> dict[str, Any]:
    return {"judgement_id": "j", "lease": lease, "task_id": "t"}


def test_a_case_that_is_claimed_again_goes_on_under_its_new_lease() -> None:
    """The server gives a case to its worker again if their connection was lost for too long."""
    hand, first = Hand(ahead=2), claim("1")
    batches = hand.read_batches()
    hand.add([first])
    assert next(batches) == [first]
    hand.add([claim("2")])
    assert next(batches) == []
    assert first["lease"] == "2"
    assert hand.list_held() == ["j"]
    assert hand.count_room(1) == (0, 2)
    hand.remove("j")
    hand.add([claim("3")])
    assert next(batches) == [claim("3")]
