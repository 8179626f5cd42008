"""A client of the MCP server: in memory, or of a process over stdio or HTTP.

Every test process imports this file; the library is imported where it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.bounds import QueryLimits
from store.lake.location import Location
from store.mcp.lake_tools import LakeTools
from store.mcp.serving import READING_ROOMS, AgentLimits, build_server

if TYPE_CHECKING:
    from mcp import Client


def open_client(server: Any, mode: str = "auto") -> Client:
    """Return a client of a server: an object, a URL, or the parameters of a process."""
    from mcp import Client

    return Client(server, mode=mode)


class Agent:
    """Calls tools and reads their JSON."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the JSON of a tool's answer, which must not be an error."""
        answer = await self.client.call_tool(tool, arguments)
        text = read_text(answer)
        assert not answer.is_error, text
        return json.loads(text)

    async def fail(self, tool: str, **arguments: Any) -> str:
        """Return the text of a tool's answer, which must be an error."""
        answer = await self.client.call_tool(tool, arguments)
        assert answer.is_error
        return read_text(answer)


def read_text(answer: Any) -> str:
    """Return the one text of an answer."""
    [content] = answer.content
    return content.text


def run_in_memory(
    lake: Path | str,
    work: Callable[[Agent], Awaitable[Any]],
    limits: QueryLimits | None = None,
    rooms: Sequence[str] = READING_ROOMS,
) -> Any:
    """Return what `work` returns, given an agent of a server in this process."""

    async def run() -> Any:
        location = Location.of(str(lake))
        async with (
            LakeTools(location, None, limits or AgentLimits(timeout=300)) as desk,
            open_client(build_server(desk, rooms)) as client,
        ):
            return await work(Agent(client))

    return asyncio.run(run())


@contextlib.asynccontextmanager
async def open_process(
    folder: Path, *words: str, room: str = "store", mode: str = "auto"
) -> AsyncGenerator[Agent]:
    """Yield an agent of a server process over stdio."""
    from mcp.client.stdio import StdioServerParameters

    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", room, "mcp", "--lake", str(folder), *words],
        env=dict(os.environ),
    )
    async with open_client(command, mode) as client:
        yield Agent(client)


@contextlib.contextmanager
def open_http_server(
    folder: Path, *words: str, env: Mapping[str, str] | None = None, room: str = "store"
) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """Yield the URL of a server process over HTTP, and the process."""
    command = [sys.executable, "-m", room, "mcp", "--lake", str(folder), "--port", "0", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **(env or {})},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.terminate()
            process.communicate(timeout=120)
