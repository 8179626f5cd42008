"""What the importer and the exporter of ATIF share: its versions, its roles and our additions."""

from __future__ import annotations

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(2, 9))
ROLES = {"system": "system", "user": "user", "agent": "assistant"}
"""Role of a step by the source that ATIF names."""
EXTRA = "kernel-flywheel"
"""Name in `extra` of values for which ATIF has no field."""
TOKENS = {
    "prompt_ids": "prompt_token_ids",
    "completion_ids": "completion_token_ids",
    "sampler_logprobs": "logprobs",
}
"""Names of lists by token in `metrics`, by our columns."""
OF_SESSION = ("problem", "harness", "outcome", "started_at")
OF_STEP = ("role", "parent", "reasoning", "model", "prompt_tokens", "completion_tokens")
OF_CALL = ("tool", "arguments", "is_error")
