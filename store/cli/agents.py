"""The command that serves a lake to agents."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from store.cli.options import COMMON, locate_lake
from store.commandline.members import Common
from store.mcp.serving import Address, AgentLimits

_ADDRESS = Address()
_LIMITS = AgentLimits()


def add_to(app: App) -> None:
    """Add this command to `store`."""
    app.command(mcp)


def mcp(
    *,
    at: Annotated[str | None, Parameter(show_default=False)] = None,
    address: Annotated[Address, Parameter(name="*")] = _ADDRESS,
    limits: Annotated[AgentLimits, Parameter(name="*")] = _LIMITS,
    common: Common = COMMON,
) -> None:
    """Serve tools to a coding agent over MCP: SQL, tasks, kernels, attempts, prompts. Read-only.

    An MCP client starts the command and talks to it over stdio; with --port it serves streamable
    HTTP. `evaluators mcp` adds tools that submit kernels to the judge. docs/mcp.md has examples.

    Examples:
      store mcp
      store mcp --at v1 --timeout 10
      store mcp --port 8766
      FLYWHEEL_MCP_TOKEN=SECRET store mcp --host 0.0.0.0 --port 8766

    Parameters
    ----------
    at
        Read the lake at this tag, snapshot number or ISO time (default: newest at each call).
    """
    from store.mcp.desk import Desk
    from store.mcp.server import build_server
    from store.mcp.serving import serve

    serve(Desk(locate_lake(common), at, limits), build_server, address)
