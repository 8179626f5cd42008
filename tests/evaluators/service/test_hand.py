"""The cases that a worker of the judge service has in hand."""

from __future__ import annotations

from evaluators.judging.case import Case
from evaluators.service.hand import Hand

CASE = Case(kernel_id="k", task_id="t", workload_id="w", request_id="j")


def test_a_case_that_is_claimed_again_goes_on_under_its_new_lease() -> None:
    """The server gives a case to its worker again if their connection was lost for too long."""
    hand = Hand(ahead=2)
    batches = hand.read_batches()
    hand.add([(CASE, "1")])
    assert next(batches) == [CASE]
    hand.add([(CASE, "2")])
    assert next(batches) == []
    assert hand.read_lease("j") == "2"
    assert hand.list_held() == ["j"]
    assert hand.count_room(1) == (0, 2)
    hand.remove("j")
    hand.add([(CASE, "3")])
    assert next(batches) == [CASE]
