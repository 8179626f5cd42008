"""Commands of the judge as a service: `serve` and `token`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from evaluators.scheduling import contract
from evaluators.scheduling.contract import Evaluator
from store.commandline import echo
from store.commandline.members import Common, Count, DeviceOption, Format
from store.errors import FlywheelError

_DEFAULT = Common()
_Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))]


def add_to(app: App) -> None:
    """Add the commands that no evaluator changes."""
    token = App(name="token", help="Create, list and revoke the tokens of a judge service.")
    for command in (create, list_, revoke):
        token.command(command, name=command.__name__.strip("_"))
    app.command(token)


def make_serve(module: Evaluator) -> Callable[..., None]:
    """Return the function of `evaluators serve` with the options of an evaluator."""
    defaults = module.Config()

    def serve(
        *,
        evaluator: str = contract.name_of(module),
        host: str = "127.0.0.1",
        port: _Port = 8770,
        device: DeviceOption = "auto",
        workers: Count = 1,
        ray: str | None = None,
        queue: Count = 10_000,
        drain_s: float = 60.0,
        config: Any = defaults,
        common: Common = _DEFAULT,
    ) -> None:
        """Judge kernels that clients send over HTTP, and append every verdict to the lake.

        The queue is durable: a killed server or judge loses nothing. SIGTERM and Ctrl-C finish
        what is being judged; what waits is judged after the next start. With --ray, the GPUs of a
        cluster judge.

        Examples:
          evaluators serve
          evaluators serve --on cuda:0,cuda:1 --port 9000
          evaluators serve --host 0.0.0.0 --ray auto

        Parameters
        ----------
        evaluator
            Name of the evaluator (`evaluators list`). Add --help to list its options.
        host
            Address to listen on. Addresses that other machines can reach need tokens.
        port
            Port to listen on; 0 takes a free one.
        device
            cpu, cuda (every GPU), or names such as cuda:0,cuda:1. auto means every GPU, or the CPU
            if there is none.
        workers
            Number of judges on the CPU or on each GPU, each with its own cores.
        ray
            Address of a Ray cluster (auto, HOST:PORT, ray://HOST:PORT). It runs one judge per GPU,
            or --workers judges with --on cpu.
        queue
            Number of judgments that may wait before clients get 429.
        drain_s
            Seconds that judges may take to finish when the server ends.
        """
        if find_spec("starlette") is None or find_spec("uvicorn") is None:
            raise FlywheelError(
                "`evaluators serve` needs starlette and uvicorn",
                "Install them: pip install 'kernel-flywheel[serve]'",
            )
        import store
        from evaluators.service import server

        options = server.Options(
            host=host,
            port=port,
            device=device,
            workers=workers,
            ray=ray,
            queue=queue,
            drain_s=drain_s,
        )
        contract.get_policy(config)
        if getattr(config, "protocol", "full") != "full":
            raise FlywheelError(
                "a judge service judges by the full protocol", "Leave out --protocol."
            )
        server.serve(store.Location.of(common.lake), module, config, options)

    return serve


def create(client: str, /, *, scope: list[str], common: Common = _DEFAULT) -> None:
    """Create a token and print it once; only its hash is stored.

    Examples:
      evaluators token create trainer --scope judge

    Parameters
    ----------
    client
        Name of its holder. Holders take turns at the judges, whatever the number of their kernels.
    scope
        read (look up judgments and tasks), judge (also submit), admin (everything). Repeat the
        option for several.
    """
    from evaluators.service import access

    echo.print_result(access.create_token(_open(common), client, access.check_scopes(scope)))


def list_(*, format: Format = "table", common: Common = _DEFAULT) -> None:
    """List the tokens: their clients, scopes and dates.

    Parameters
    ----------
    format
        Format of the list.
    """
    from datetime import UTC, datetime

    import pyarrow as pa

    from evaluators.service import access
    from store.commandline import display

    rows = [
        row | {"created_at": datetime.fromtimestamp(int(row["created_at"]), UTC).isoformat()}
        for row in access.list_tokens(_open(common))
    ]
    schema = pa.schema([(name, pa.string()) for name in ("client", "scopes", "created_at")])
    display.write_rows(pa.Table.from_pylist(rows, schema=schema), format)


def revoke(client: str, /, *, common: Common = _DEFAULT) -> None:
    """Revoke a token. The server refuses it from now on.

    Parameters
    ----------
    client
        Name of its holder.
    """
    from evaluators.service import access

    access.revoke_token(_open(common), client)
    echo.print_result(f"the token of {client} is revoked")


def _open(common: Common) -> Any:
    """Open the queue of the lake that the options name. Raises LakeNotFound."""
    import store
    from evaluators.service.queue import Database

    location = store.Location.of(common.lake)
    location.require()
    return Database(location)
