"""The shell that the four rooms share: members found by file name, common options, exit codes."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import App, Parameter

from store.commandline import echo
from store.errors import FlywheelError, UnknownName

Format: TypeAlias = Literal["table", "json", "csv"]

_DEFECT = "This error was not expected; the lines above say where it comes from."


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """Options that every command takes."""

    lake: Annotated[str | None, Parameter(env_var="FLYWHEEL_LAKE", show_default=False)] = None
    """Folder of the lake (default ./lake)."""
    catalog: Annotated[str | None, Parameter(env_var="FLYWHEEL_CATALOG", show_default=False)] = None
    """Catalog file instead of the installed one."""
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="")] = False
    """Say more, and show tracebacks."""
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False
    """Say only what goes wrong."""

    def __post_init__(self) -> None:
        """Set up logging, and the catalog for everything that this process opens."""
        if self.catalog is not None:
            os.environ["FLYWHEEL_CATALOG"] = self.catalog
        level = logging.DEBUG if self.verbose else logging.ERROR if self.quiet else logging.INFO
        echo.set_up_logging()
        for room in ("store", "pipelines", "evaluators", "trainers"):
            logging.getLogger(room).setLevel(level)


@dataclass(frozen=True)
class Member:
    """One importer, pipeline, evaluator or trainer: a bare file in its room."""

    name: str
    file: Path
    module: str
    about: str

    def load(self) -> ModuleType:
        """Import the member's module. Raises FlywheelError where the user's file is not Python."""
        if not self.module.startswith("flywheel."):
            return importlib.import_module(self.module)
        spec = importlib.util.spec_from_file_location(self.module, self.file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.module] = module
        try:
            spec.loader.exec_module(module)
        except SyntaxError as error:
            raise FlywheelError(f"{self.file} is not Python: {error}") from error
        return module


def members(room: str) -> dict[str, Member]:
    """Return the members of a room (`pipelines`, `store.importers` …) by name, none imported.

    The user's own files in ./flywheel/<room>/ come after ours and may not take our names.
    """
    package = importlib.import_module(room)
    ours = Path(str(package.__file__)).parent
    own = Path("flywheel") / room.rpartition(".")[2]
    found: dict[str, Member] = {}
    for folder, prefix in ((ours, room), (own, f"flywheel.{room.rpartition('.')[2]}")):
        for file in sorted(folder.glob("[!_]*.py")):
            name = file.stem.replace("_", "-")
            if name in found:
                raise UnknownName(
                    f"{file} takes the name of a member that is there: {name}", "Rename the file."
                )
            about = next(iter(_docstring(file)), "(no description)")
            found[name] = Member(name, file, f"{prefix}.{file.stem}", about)
    return found


def member(room: str, name: str) -> Member:
    """Return one member of a room; raises UnknownName with the nearest one."""
    found = members(room)
    wanted = name.replace("_", "-")
    if wanted not in found:
        raise UnknownName.among(room.rpartition(".")[2].removesuffix("s"), name, found)
    return found[wanted]


@dataclass(frozen=True)
class Group:
    """A command with one subcommand per member of a room, such as `pipelines run`."""

    app: App
    """The command."""
    room: str
    """Package that holds the members."""
    command: Callable[[Member], Callable[..., Any]]
    """Makes the function of a member; called for the member that was named alone."""

    def fill(self, argv: Sequence[str]) -> None:
        """Add the subcommands, importing only the first member that the arguments name."""
        if self.app.name[0] not in argv:
            return
        found = members(self.room)
        words = (word.replace("_", "-") for word in argv)
        named = next((word for word in words if word in found), None)
        for one in found.values():
            if one.name == named:
                self.app.command(self.command(one), name=one.name, help=_help(one))
            else:
                self.app.command(_unloaded, name=one.name, help=one.about)


def run(app: App, *groups: Group, argv: Sequence[str] | None = None) -> None:
    """Run a room's command line and leave the process with its exit code.

    0 done, 1 refused with a reason, 2 usage, 3 rows broke a rule, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    app.suppress_keyboard_interrupt = False  # which says nothing; the handler below does
    with echo.escaped_streams():
        try:
            for group in groups:
                group.fill(arguments)
            app(
                arguments,
                console=echo.open_console(),
                error_console=echo.open_console(stderr=True),
            )
        except FlywheelError as error:
            if {"-v", "--verbose"} & set(arguments):
                echo.print_traceback(error)
            echo.print_error(error)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            echo.print_note("interrupted; what was committed stays, run it again to go on")
            sys.exit(130)
        except BrokenPipeError:
            # The reader of our output went away (`| head`): nothing is left to say.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        except Exception as error:
            echo.print_traceback(error)
            echo.print_error(FlywheelError(f"{type(error).__name__}: {error}", _DEFECT))
            sys.exit(1)


def doc_lines(file: Path) -> Iterator[str]:
    """Yield the lines of a member's docstring after the first."""
    yield from _docstring(file)[1:]


def _docstring(file: Path) -> list[str]:
    """Return the lines of a module's docstring; none where it is not Python: `load` says so."""
    try:
        return (ast.get_docstring(ast.parse(file.read_bytes())) or "").splitlines()
    except (SyntaxError, ValueError):
        return []


def _help(one: Member) -> str:
    return "\n".join([one.about, *doc_lines(one.file)])


def _unloaded() -> None:
    """Stand for a member that this process did not ask for."""
