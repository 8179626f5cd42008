"""verl's `compute_score`, as a custom reward function of its reward loop.

verl has no way to leave a sample out, so a kernel that the service could not judge raises an error
instead of giving a score. The client waits as long as `deadline_s` says before that.
"""

from functools import cache
from typing import Any

from evaluators.service.client import Client
from evaluators.service.completions import check_rule, score_completion


class NotJudged(RuntimeError):
    """The service could not judge a kernel in time, for a reason that is not the kernel's."""


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    *,
    url: str,
    rule: str = "speedup",
    device_class: str | None = None,
    deadline_s: float = 7200.0,
    **_: Any,
) -> dict[str, Any]:
    """Return the score of a completion, with the same keys for every sample.

    Args:
        solution_str: The completion.
        ground_truth: Id or name of the task.
        url: Of the judge service.
        rule: speedup or success.
        device_class: Device class; None where the service has one.
        deadline_s: Most seconds to wait for a verdict.

    Raises:
        NotJudged: there is no verdict.
        Unreachable: the service refuses the token or the task.
    """
    del data_source, extra_info
    client = open_client(url, device_class, deadline_s)
    scored = await score_completion(client, ground_truth, solution_str, check_rule(rule))
    if scored.reward is None:
        judgement = scored.judgement
        assert judgement is not None
        raise NotJudged(f"{judgement.reason}: {judgement.message}")
    return {"score": scored.reward, **scored.facts}


@cache
def open_client(url: str, device_class: str | None, deadline_s: float) -> Client:
    """Return the one client of a process for all samples with these settings."""
    return Client(url, device_class=device_class, deadline_s=deadline_s)
