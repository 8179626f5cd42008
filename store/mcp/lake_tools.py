"""What the tools of an MCP server read a lake with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from store.guard.lake_readers import LakeReaders
from store.lake.limits import QueryLimits
from store.lake.location import Location
from store.lake.reader import Lake
from store.lake.result import interrupt_after

T = TypeVar("T")

CLIENT: ContextVar[str | None] = ContextVar("CLIENT", default=None)
"""Name and version of the program that calls a tool, as it states them."""
_MOST_PROMPTS = 1000


@dataclass(frozen=True, kw_only=True)
class IssuedPrompt:
    """A prompt that a tool gave to an agent; a later attempt can name it."""

    prompt_id: str
    messages: str
    """JSON, as the table prompts stores it."""
    template_hash: str
    task_id: str
    purpose: str
    exemplar_kernel_ids: Sequence[str]
    exemplar_scores: Sequence[float]
    lake_id: str
    snapshot_id: int


class LakeTools(LakeReaders):
    """Reads one lake for tools, and knows the prompts that they gave out."""

    def __init__(self, location: Location, at: str | None, limits: QueryLimits) -> None:
        super().__init__(location, limits)
        self.prompts: OrderedDict[str, IssuedPrompt] = OrderedDict()
        """Prompts that this server has issued, by id; the oldest are forgotten."""
        self._at = at

    def find_snapshot(self, at: str | None) -> int:
        """Return the snapshot that a call reads. Raises SnapshotNotFound."""
        return super().find_snapshot(at or self._at)

    async def read(self, snapshot: int, work: Callable[[Lake], T]) -> T:
        """Return what a function of ours reads from the lake at a snapshot.

        It takes its turn with the agents' queries, and has the same limits.

        Raises ServerBusy, FlywheelError past a limit, and what `work` raises.
        """

        def work_within_limits(lake: Lake) -> T:
            with interrupt_after(lake, self.limits):
                return work(lake)

        return await super().read(snapshot, work_within_limits)

    def remember(self, prompt: IssuedPrompt) -> None:
        """Remember a prompt, so that an attempt can name it."""
        self.prompts[prompt.prompt_id] = prompt
        while len(self.prompts) > _MOST_PROMPTS:
            self.prompts.popitem(last=False)
