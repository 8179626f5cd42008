"""What the command lines of the four rooms share: members, options, help pages, exit codes."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import logging
import math
import os
import re
import select
import shlex
import sys
import traceback
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

from cyclopts import App, CycloptsError, Parameter
from cyclopts.exceptions import (
    MissingArgumentError,
    RepeatArgumentError,
    UnknownOptionError,
)
from cyclopts.validators import Number

from store import describe_version, faults
from store.commandline import echo, interrupts
from store.errors import FlywheelError, UnknownName, UsageError

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions


Format: TypeAlias = Literal["table", "json", "csv"]
ListFormat: TypeAlias = Annotated[Format, Parameter(help="Format of the list.")]
ResultFormat: TypeAlias = Annotated[
    Literal["table", "json"], Parameter(help="Format of the result.")
]
"""Formats of a result that is more than one table."""
Count: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1, lt=2**31))]
"""A number of things, at least one."""
Positive: TypeAlias = Annotated[float, Parameter(validator=Number(gt=0, lt=math.inf))]
"""A finite number above 0."""
Share: TypeAlias = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]
"""A share of a whole, from 0 to 1."""
DeviceOption: TypeAlias = Annotated[str, Parameter(name="--on")]
"""The devices of this host that judge or train: cpu, cuda, cuda:0,cuda:1 or auto."""
DeviceModel: TypeAlias = Annotated[str, Parameter(name="--device")]
"""The device model that figures of a publication are of, such as H100."""
AuthorOption: TypeAlias = Annotated[str, Parameter(name="--author")]
"""Who wrote kernels: a name or id of table `policies`."""

COMPLETION = "--install-completion"
"""The option of each room that installs its completion in the user's shell."""
_DEFECT = "This is a bug. The lines above show where it happened."


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """Options that every command takes, before or after its name."""

    lake: Annotated[str | None, Parameter(env_var="FLYWHEEL_LAKE", show_default=False)] = None
    """Folder or URL of the lake (default ./lake)."""
    catalog: Annotated[str | None, Parameter(env_var="FLYWHEEL_CATALOG", show_default=False)] = None
    """Use this catalog file instead of the installed one."""
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="")] = False
    """Print more, including tracebacks."""
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False
    """Print errors only."""

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
    """One importer, exporter, pipeline, evaluator or trainer: a bare file in its room."""

    name: str
    file: Path
    module: str
    about: str

    def load(self, *names: str) -> ModuleType:
        """Import the member's module, which defines these names.

        Raises FlywheelError if the import of a user's file fails, or the file lacks one of them.
        """
        if not self.module.startswith("flywheel."):
            return importlib.import_module(self.module)
        spec = importlib.util.spec_from_file_location(self.module, self.file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.module] = module
        try:
            spec.loader.exec_module(module)
        except FlywheelError:
            raise
        except SyntaxError as error:
            raise FlywheelError(f"{self.file} is not Python: {error}") from error
        except (Exception, SystemExit) as error:
            place = _find_own_line(error)
            line = f" (line {place[1]})" if place and place[0] == self.file else ""
            raise FlywheelError(
                f"{self.file} cannot be imported: {type(error).__name__}: {error}{line}",
                "Correct the file or move it away. --verbose prints the traceback.",
            ) from error
        if missing := [name for name in names if not hasattr(module, name)]:
            room = self.module.split(".")[1]
            raise FlywheelError(
                f"{self.file} defines no {', '.join(missing)}",
                f"A file of ./flywheel/{room} defines {', '.join(names)}: see {room}/README.md.",
            )
        return module


def _find_own_line(error: BaseException) -> tuple[Path, int] | None:
    """Return the file of ./flywheel and the line that ran last when an error was raised."""
    folder = Path("flywheel").absolute()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if folder in (file := Path(frame.filename)).parents:
            return file.relative_to(folder.parent), frame.lineno or 0
    return None


def find_members(room: str) -> dict[str, Member]:
    """Return the members of a room (`pipelines`, `store.importers` …) by name, none imported.

    The user's own files in ./flywheel/<room>/ come after ours. Raises UnknownName if one of them
    has the name of another member.
    """
    package = importlib.import_module(room)
    ours = Path(str(package.__file__)).parent
    own = Path("flywheel") / room.rpartition(".")[2]
    by_name: dict[str, Member] = {}
    for folder, prefix in ((ours, room), (own, f"flywheel.{room.rpartition('.')[2]}")):
        for file in sorted(folder.glob("[!_]*.py")):
            name = file.stem.replace("_", "-")
            if name in by_name:
                raise UnknownName(f'{file}: there is a member "{name}" already', "Rename the file.")
            about = next(iter(_docstring(file)), "(no description)")
            by_name[name] = Member(name, file, f"{prefix}.{file.stem}", about)
    return by_name


def find_member(room: str, name: str) -> Member:
    """Return one member of a room; raises UnknownName with the nearest name."""
    by_name = find_members(room)
    normal = name.replace("_", "-")
    if normal not in by_name:
        raise UnknownName.among(_noun(room), name, by_name)
    return by_name[normal]


def add_list(app: App, room: str) -> None:
    """Add the command `list`, which prints the members of a room, to the room's app."""

    default, noun = Common(), _noun(room)

    def list_(*, format: ListFormat = "table", common: Common = default) -> None:
        """List the members."""
        from store.commandline import display

        rows = [{noun: one.name, "about": one.about} for one in find_members(room).values()]
        display.write_rows(rows, format)

    app.command(
        list_,
        name="list",
        help=f"List the {noun}s: the files of {room}/ and of ./flywheel/{room}/.",
    )


@dataclass(frozen=True)
class Group:
    """A command with one subcommand per member of a room, such as `pipelines run`."""

    app: App
    room: str
    command: Callable[[Member], Callable[..., Any]]
    """Returns the function of a member; called only for the member that the arguments name."""

    def fill(self, argv: Sequence[str]) -> None:
        """Add the subcommands, importing only the first member that the arguments name."""
        if self.app.name[0] not in argv and COMPLETION not in argv:
            return
        by_name = find_members(self.room)
        words = (word.replace("_", "-") for word in argv)
        named = next((word for word in words if word in by_name), None)
        for one in by_name.values():
            if one.name == named:
                self.app.command(
                    self.command(one),
                    name=one.name,
                    help="\n".join([one.about, *doc_lines(one.file)]),
                )
            else:
                self.app.command(_do_nothing, name=one.name, help=one.about)


def run(app: App, *groups: Group, argv: Sequence[str] | None = None) -> None:
    """Run a room's command line and leave the process with its exit code.

    0 done, 1 refused with a reason, 2 wrong usage, 3 rows broke a rule, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    with echo.escape_streams():
        try:
            with interrupts.handle():
                for group in groups:
                    group.fill(arguments)
                try:
                    app(
                        move_common_options(app, arguments),
                        console=echo.open_console(),
                        error_console=echo.open_console(stderr=True),
                        print_error=False,
                        exit_on_error=False,
                    )
                except SystemExit:
                    sys.stdout.flush()  # the interpreter would not explain a failure
                    raise
        except Exception as error:
            is_closed = False
            if isinstance(error, BrokenPipeError):
                pipe = select.poll()
                pipe.register(sys.stdout.fileno(), 0)  # errors and hang-ups are always reported
                is_closed = bool(pipe.poll(0))
            if is_closed or (isinstance(error, OSError) and error.filename == "<stdout>"):
                # The interpreter must not write what is buffered when it ends.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if is_closed:  # `| head` has read enough
                sys.exit(0)
            is_usage = isinstance(error, CycloptsError)
            fault = _explain_usage(error, app) if is_usage else faults.explain(error)
            if fault is None and (place := _find_own_line(error)):
                fault = FlywheelError(
                    f"{place[0]}, line {place[1]}: {type(error).__name__}: {error}",
                    "Correct that file. --verbose prints the traceback.",
                )
            if fault is None or ({"-v", "--verbose"} & {*arguments} and not is_usage):
                echo.print_foreign("".join(traceback.format_exception(error)), sys.stderr)
            fault = fault or FlywheelError(f"{type(error).__name__}: {error}", _DEFECT)
            echo.print_error(fault)
            sys.exit(fault.exit_code)


_OTHER_OPTIONS = {
    "--device": "--on", "--on": "--device", "--gpu": "--device", "--policy": "--author",
    "--model": "--author",
    "--output": "--out", "-o": "--out", "--json": "--format",
    "--include-weak": "--include-trivial", "--per-policy": "--per-author",
}  # fmt: skip
"""Options that are often meant where a command has no option of a name."""
_ONE_LINE = (
    'This command prints one line and no rows. `store query --format json "FROM ingest_log"` '
    "prints what each commit stored."
)


def _explain_usage(error: CycloptsError, app: App) -> UsageError:
    """Return what is wrong with a command line, and what to type instead."""
    command = " ".join((app.name[0], *(error.command_chain or ())))
    message, hint = str(error).rstrip("."), f"`{command} --help` says what it takes."
    if isinstance(error, UnknownOptionError):
        option = error.token.keyword or error.token.value
        names = [name for argument in error.argument_collection for name in argument.names]
        near = [_OTHER_OPTIONS.get(option, ""), *difflib.get_close_matches(option, names, 1, 0.75)]
        message = f"`{command}` has no option {option}"
        if option == "--format":
            hint = _ONE_LINE
        elif meant := next((name for name in near if name in names), None):
            hint = f"Did you mean {meant}? {hint}"
    elif isinstance(error, RepeatArgumentError):
        message = f"`{command}` takes {error.token.keyword} once"
    elif error.unused_tokens:
        word = error.unused_tokens[0]
        known = [name for name in error.app or () if name[0] != "-"]
        message = f"`{command}` takes no {word}"
        if known:
            unknown = UnknownName.among(f"command of `{command}`", word, known)
            message, near = unknown.message, unknown.hint or ""
            hint = f"{near}{'' if near.endswith('?') else '.'} {hint}"
        if Path(word).suffix in (".py", ".cu", ".cpp"):
            hint = f"To judge a file, `evaluators check {shlex.quote(word)} --task TASK`. {hint}"
        elif Path(word).exists():
            hint = f"`store import detect {shlex.quote(word)}` names the importer for it. {hint}"
    elif isinstance(error, MissingArgumentError) and error.argument:
        message = f"`{command}` needs {error.argument.name}"
        for argument in (error.app or app).assemble_argument_collection(parse_docstring=True):
            if argument.name == error.argument.name:
                hint = f"{' '.join((argument.parameter.help or '').split())} {hint}".strip()
    return UsageError(message, hint)


def annotate_config(config: type) -> Any:
    """Return the annotation of a parameter that takes a member's Config as single options.

    cyclopts takes a class without fields for one value, so such a Config is no parameter at all. It
    looks types up in the module of the Config, which need not import those of a base's fields.
    """
    if not is_dataclass(config) or any(
        option.default is option.default_factory is MISSING for option in fields(config)
    ):
        raise FlywheelError(
            f"Config of {sys.modules[config.__module__].__file__} is no dataclass whose fields all "
            "have defaults",
            "Write @dataclass(frozen=True, kw_only=True) above it, and a default for every field.",
        )
    is_empty = not fields(config)
    config.__init__.__annotations__ |= typing.get_type_hints(config, include_extras=True)
    return Annotated[config | None, Parameter(parse=False) if is_empty else Parameter(name="*")]


def name_option(config: type, field: str) -> str | None:
    """Return the option of a field of a Config, or None if it has none."""
    hint = typing.get_type_hints(config, include_extras=True)[field]
    # An optional type with a name of its own is a union of it.
    hints = (hint, *typing.get_args(hint))
    notes = [note for one in hints for note in getattr(one, "__metadata__", ())]
    parameters = [note for note in notes if isinstance(note, Parameter)]
    if any(parameter.parse is False for parameter in parameters):
        return None
    named = [name for parameter in parameters for name in parameter.name or ()]
    return named[0] if named else f"--{field.replace('_', '-')}"


def list_options(config: type) -> list[str]:
    """Return the options of a Config with their defaults, one a line."""
    lines: list[str] = []
    for option in fields(config):
        if name := name_option(config, option.name):
            is_empty = option.default is None or option.default == ()
            lines.append(f"  {name}" + ("" if is_empty else f" = {option.default}"))
    return lines


def doc_lines(file: Path) -> Iterator[str]:
    """Yield the lines of a member's docstring after the first."""
    yield from _docstring(file)[1:]


def _noun(room: str) -> str:
    return room.rpartition(".")[2].removesuffix("s")


def move_common_options(app: App, arguments: Sequence[str]) -> list[str]:
    """Move common options that stand before or between command names behind all other options.

    cyclopts reads options only after the name of the command that they belong to.
    """
    takes_value: dict[str, bool] = {}
    for name, hint in typing.get_type_hints(Common, include_extras=True).items():
        kind, parameter = typing.get_args(hint)
        takes_value |= dict.fromkeys(parameter.name or (f"--{name}",), kind is not bool)
    commands: list[str] = []
    moved: list[str] = []
    # SQL that begins with a comment is no option.
    rest = [f" {word}" if word[:2] == "--" and word[2:3].isspace() else word for word in arguments]
    while rest:
        option, has_value, _ = rest[0].partition("=")
        if option in takes_value:
            count = 2 if takes_value[option] and not has_value else 1
            moved += rest[:count]
            rest = rest[count:]
        elif not rest[0].startswith("-") and rest[0] in app:
            app = app[rest[0]]
            commands.append(rest.pop(0))
        else:
            break
    end = rest.index("--") if "--" in rest else len(rest)
    return [*commands, *rest[:end], *moved, *rest[end:]]


def _docstring(file: Path) -> list[str]:
    """Return the lines of a module's docstring; none if it is not Python, which `load` reports."""
    try:
        return (ast.get_docstring(ast.parse(file.read_bytes())) or "").splitlines()
    except (SyntaxError, ValueError):
        return []


def find_option(arguments: Sequence[str], option: str) -> str | None:
    """Return the value of an option before the arguments are parsed, or None if it is not there.

    >>> find_option(["run", "--preset", "tiny"], "--preset"), find_option(["--at=v1"], "--at")
    ('tiny', 'v1')
    """
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, has_value, value = word.partition("=")
        if name == option:
            return value if has_value else following
    return None


def _do_nothing() -> None:
    """Stand for a member that the arguments do not name."""


_SHARED = (
    "Results go to stdout, notes and errors to stderr. Exit codes: 0 done, 1 refused with a "
    "reason, 2 wrong usage, 3 rows broke a rule. Every command takes --lake, --catalog, --verbose "
    "and --quiet, before or after its name."
)
_HEADING = re.compile(r"^([ ]*Examples?):[ ]*$", re.MULTILINE)


class HelpFormatter:
    """Prints help pages: paragraphs are wrapped, indented lines (examples) stay as they are."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print one panel of commands or parameters."""
        from cyclopts.help import DefaultFormatter

        texts = (" ".join(_read_plain_text(one.description).split()) for one in panel.entries)
        entries = [
            entry.copy(description=echo.name_commands(text))
            for entry, text in zip(panel.entries, texts, strict=True)
        ]
        DefaultFormatter()(console, options, panel.copy(entries=entries))

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Print the usage line."""
        from cyclopts.help import DefaultFormatter

        if usage is not None:
            usage = echo.name_commands(_read_plain_text(usage))
        DefaultFormatter().render_usage(console, options, usage)

    def render_description(self, console: Console, options: ConsoleOptions, text: Any) -> None:
        """Print the description of a command."""
        from rich.text import Text

        for line in _join_paragraphs(echo.name_commands(_read_plain_text(text))):
            # An example is one command line, which must stay whole when it is copied.
            console.print(Text(line), soft_wrap=line.startswith(" "))
        console.print()


class CommandApp(App):
    """A cyclopts app with the help pages and settings that the four rooms share.

    cyclopts reads help texts with docstring_parser, which takes `Examples:` alone on a line for a
    section of a Google-style docstring. cyclopts does not print such sections, and where the
    section hides numpydoc's `Parameters`, options lose their help. `Examples::` has no such
    meaning, and `HelpFormatter` prints it as `Examples:`.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        """Take the arguments of `cyclopts.App`."""
        shared: dict[str, Any] = {
            "help_format": "plaintext",
            "help_formatter": HelpFormatter(),
            # No --empty-NAME options.
            "default_parameter": Parameter(negative_iterable=(), show_default=_show_default),
            # `members.run` reports interrupts.
            "suppress_keyboard_interrupt": False,
        }
        super().__init__(*arguments, **(shared | settings))

    @property
    def help(self) -> str:
        """Help text with headings of examples that cyclopts prints."""
        return _mark_examples(super().help)

    @help.setter
    def help(self, value: str | None) -> None:
        self._help = value

    def default(self, obj: Any = None, **settings: Any) -> Any:
        """Register the function of a command; see `cyclopts.App.default`."""
        if isinstance(obj, FunctionType) and obj.__doc__:
            obj.__doc__ = _mark_examples(obj.__doc__)
        return super().default(obj, **settings)


def make_room_app(name: str, about: str, examples: Sequence[str]) -> CommandApp:
    """Return the app of a room: its help has the text, what all rooms share, and the examples."""
    listed = "\n".join(f"  {example}" for example in examples)
    app = CommandApp(
        name=name,
        help=f"{about.strip()}\n\n{_SHARED}\n\nExamples:\n{listed}",
        version_flags=["--version"],
        version=describe_version,
    )
    app.register_install_completion_command(
        COMPLETION, help="Install completion of this command for bash, zsh or fish."
    )
    return app


def _mark_examples(text: str) -> str:
    return _HEADING.sub(r"\1::", text)


def _read_plain_text(text: Any) -> str:
    return str(getattr(text, "primary_renderable", text) or "")


def _join_paragraphs(text: str) -> list[str]:
    """Return one line for each paragraph, list item and indented line of a text.

    >>> _join_paragraphs("One\\ntwo.\\n\\nExamples::\\n  store log\\n  store check")
    ['One two.', '', 'Examples:', '  store log', '  store check']
    """
    lines: list[str] = []
    for line in text.strip("\n").split("\n"):
        before = lines[-1] if lines else ""
        ends = not before or before.startswith(" ") or before.endswith("::")
        if ends or not line or line.startswith((" ", "- ")):
            lines.append(line.rstrip())
        else:
            lines[-1] = f"{before} {line.strip()}"
    return [re.sub("::$", ":", line) for line in lines]


def _show_default(value: Any) -> str | None:
    """Return how a default is printed; None where nothing is to be said.

    >>> _show_default(("a", "b")), _show_default(()), _show_default(False), _show_default(2.5)
    ('a b', None, None, '2.5')
    """
    if value is False or value is None:
        return None
    listed = cast("Sequence[object]", value) if isinstance(value, tuple | list) else [value]
    return " ".join(map(str, listed)) or None
