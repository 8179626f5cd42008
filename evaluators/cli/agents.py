"""The command that serves a lake and the judge to agents."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from evaluators.scheduling import contract
from evaluators.scheduling.contract import Evaluator
from store.commandline.members import Common
from store.mcp.serving import Address, AgentLimits

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from store.mcp.desk import Desk

_DEFAULT = Common()
_ADDRESS = Address()


def make_mcp(module: Evaluator) -> Callable[..., None]:
    """Return the function of `evaluators mcp` with the options of an evaluator."""
    defaults = module.Config()

    def mcp(
        *,
        evaluator: str = contract.name_of(module),
        device: str = "auto",
        workers: int = 1,
        address: Annotated[Address, Parameter(name="*")] = _ADDRESS,
        config: Any = defaults,
        common: Common = _DEFAULT,
    ) -> None:
        """Serve the tools of `store mcp`, and tools that submit kernels to the judge.

        Every kernel that an agent submits is stored as an attempt with its author, session and
        parent, and judged on this machine in the sandbox of `evaluators run`. An MCP client starts
        the command and talks to it over stdio; with --port it serves streamable HTTP. docs/mcp.md
        has examples.

        Examples:
          evaluators mcp
          evaluators mcp --device cuda:0
          FLYWHEEL_MCP_TOKEN=SECRET evaluators mcp --host 0.0.0.0 --port 8766

        Parameters
        ----------
        evaluator
            Name of the evaluator (`evaluators list`). Add --help to list its options.
        device
            cpu, cuda (every GPU), or names such as cuda:0,cuda:1. auto means every GPU, or the CPU
            if there is none.
        workers
            Number of judges on the CPU or on each GPU, each with its own cores.
        """
        import store
        from evaluators.scheduling.pool import Pool
        from evaluators.submissions.desk import JudgeDesk
        from store.mcp.server import READING_ROOMS, build_server
        from store.mcp.serving import serve

        def build(desk: Desk) -> MCPServer[Any]:
            return build_server(desk, (*READING_ROOMS, contract.ROOM))

        def make_pool() -> Pool:
            return Pool(common.lake, device, config, evaluator=evaluator, workers=workers)

        contract.get_policy(config)
        desk = JudgeDesk(
            store.Location.of(common.lake),
            AgentLimits(),
            make_pool,
            {"evaluator": evaluator, "device": device, "config": dataclasses.asdict(config)},
        )
        serve(desk, build, address)

    return mcp
