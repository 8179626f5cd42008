r"""The files that an agent writes, followed from its tool calls; nothing is executed.

Harnesses name the same few operations differently, so names of tools and arguments are compared
without case, `_` and `-`: write a file, replace a text in it that is there once, insert lines,
apply a patch (`*** Begin Patch`, `<<<<<<< SEARCH`). Of a shell command, these are followed: a file
written by `cat`, `tee` or `apply_patch` from a heredoc, `sed -i` that replaces a literal text or
deletes lines, `cp`, `mv`, `rm` and `cd`; and a Python script that reads a file, replaces literal
texts and writes it back. A file changed in any other way is unknown until it is written as a whole.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from store.code.python_syntax import parse_python
from store.errors import ImportFailed
from store.foreign import text_files

MAX_FILES = 1_000
MAX_CHARACTERS = 2_000_000
"""A larger file is not followed."""
_MAX_COMMAND = 4_000_000

_WRITES = {
    *("write", "writefile", "createfile", "create", "writetofile", "savefile", "filewrite"),
    *("createnewfile", "newfile", "filecreate", "fswrite", "overwritefile", "createtextfile"),
}
_APPENDS = {"append", "appendfile", "fileappend", "appendtofile"}
_EDITS = {
    *("edit", "strreplace", "editfile", "multiedit", "replace", "strreplacefile", "fileedit"),
    *("replaceinfile", "searchreplace", "applydiff", "searchandreplace", "multieditfile"),
    *("replacestringinfile", "multireplacestringinfile", "strreplacebasededit", "replacetext"),
}
_INSERTS = {"insert", "insertlines", "insertatline"}
_DELETES = {"delete", "deletefile", "removefile", "filedelete"}
_COMMANDS = {"strreplaceeditor", "strreplacebasededittool", "texteditor", "editor", "edittool"}
_SCRIPTS = {"python", "ipython", "executeipythoncell", "runpython", "executepython", "pythonexec"}
_PATHS = (
    *("filepath", "path", "filename", "absolutepath", "targetfile", "file", "relativepath"),
    *("targetpath", "notebookpath"),
)
_CONTENTS = (
    *("content", "filetext", "contents", "text", "newcontent", "filecontent", "code"),
    *("codecontent", "data", "body"),
)
_OLD = ("oldstring", "oldstr", "oldtext", "old", "search", "find", "oldcontent", "target")
_NEW = ("newstring", "newstr", "newtext", "new", "replace", "replacement", "newcontent")
_SHELL = ("command", "cmd", "keystrokes", "script", "commandline", "input", "code", "bash")
_SEARCH = re.compile(
    r"^<{5,9} ?SEARCH>?\n(?:(?::start_line:.*\n|-{5,9}\n)*)(.*?)^={5,9}\n(.*?)^>{5,9} ?REPLACE",
    re.MULTILINE | re.DOTALL,
)
_TOKEN = re.compile(
    r"""(?P<blank>[ \t]+)
    |(?P<newline>\n)
    |(?P<comment>\#[^\n]*)
    |(?P<heredoc><<(?!<)(?P<tabs>-?)[ \t]*(?:(?P<q>['"])(?P<quoted>[^'"\n]+)(?P=q)
        |(?P<escape>\\?)(?P<name>[\w.-]+)))
    |(?P<redirect>&>|>>|>\||>&|<&|<<<|[<>])
    |(?P<operator>&&|\|\||[;|&()])
    |(?P<single>'[^']*')
    |(?P<double>"[^"\\]*(?:\\.[^"\\]*)*")
    |(?P<escaped>\\.)
    |(?P<plain>[^\s'"\\;&|<>()\#]+)""",
    re.VERBOSE | re.DOTALL,
)
_INTERESTING = re.compile(
    r"<<|>|\b(?:sed|tee|cp|mv|rm|cd|pushd|patch|git|truncate|apply_patch|perl|python[0-9.]*)\b"
)
_SHELLS = ("bash", "sh", "zsh")
_CHANGERS = ("patch", "perl", "ed", "ex", "vim", "truncate", "dd")
"""Programs that may change a file in a way that is not followed."""
_GIT_CHANGERS = {"apply", "checkout", "restore", "reset", "stash"}
_KERNEL = re.compile(
    r"^\s*class\s+ModelNew\b|^\s*ModelNew\s*=|\b__global__\b|@(?:triton|gluon|tilelang|nki)\.jit"
    r"|@triton\.(?:autotune|heuristics)|@cute\.(?:kernel|jit)|@flyc?\.(?:kernel|jit)|@ct\.kernel"
    r"|@helion\.kernel|@T\.prim_func",
    re.MULTILINE,
)
_PYTHON = re.compile(r"(?:.*/)?(?:python[0-9.]*|ipython)")
_SUBSTITUTE = re.compile(r"s(?P<d>[^\w\s\\])(?P<old>(?:\\.|(?!(?P=d)).)*)(?P=d)", re.DOTALL)
_ADDRESS = re.compile(r"([0-9]+)(?:,([0-9]+|\$))?|\$")
_SPECIAL = {False: ".*[]^$", True: ".*[]^$+?(){}|"}
"""Characters that mean something in a basic and an extended regular expression."""


def is_kernel(text: str) -> bool:
    """Return whether a source text defines ModelNew or has device code."""
    return _KERNEL.search(text) is not None


def _is_whole_kernel(text: str) -> bool:
    """Return whether a text is a file with a kernel, and not a part of one."""
    if len(text) > MAX_CHARACTERS or not is_kernel(text):
        return False
    return parse_python(text) is not None or text.lstrip().startswith(("#inc", "//", "/*"))


@dataclass
class SessionFiles:
    """The files of one session, by path, as far as every character of them is known."""

    texts: dict[str, str] = field(default_factory=dict[str, str])
    lost: int = 0
    """Changes that could not be followed exactly, of files that were known."""
    _folder: str = ""
    """Working directory of the shell, empty while it is unknown."""

    def follow(self, tool: str, arguments: Any) -> list[str]:
        """Apply a call that succeeded; return the paths that it wrote, in order."""
        written: list[str] = []
        name = _plain(tool.rpartition(".")[2].rpartition("__")[2])
        if isinstance(arguments, str):
            # A call with one free text: a patch, a script or a command.
            key = "code" if name in _SCRIPTS else "command"
            arguments = {key: arguments}
        if not isinstance(arguments, Mapping):
            return written
        named = {
            _plain(str(key)): value for key, value in cast("dict[str, Any]", arguments).items()
        }
        if name in _COMMANDS:
            name = _plain(str(named.pop("command", "")))
        path = _first_text(named, _PATHS)
        if path is not None and name in _WRITES | _APPENDS:
            text = _first_text(named, _CONTENTS)
            appends = (
                name in _APPENDS or named.get("append") is True or named.get("mode") == "append"
            )
            self._write(path, text, written, append=appends)
        elif path is not None and name in _EDITS:
            self._change(path, lambda text: _edit(text, named), written)
        elif path is not None and name in _INSERTS:
            self._change(path, lambda text: _insert(text, named), written)
        elif path is not None and name in _DELETES:
            self.texts.pop(self._resolve(path), None)
        elif path is not None and name == "undoedit":
            self._lose(path)
        elif name in _SCRIPTS:
            self._run_python(_first_text(named, ("code", "script", "input")) or "", written)
        elif name == "applypatch":
            patch = _first_text(
                named, ("input", "patch", "content", "command", "diff", "patchtext")
            )
            self._patch(patch or "", written)
        elif (
            path is not None
            and not named.keys() & {*_OLD}
            and (text := _first_text(named, _CONTENTS)) is not None
            and _is_whole_kernel(text)
        ):
            # A tool of any other name, or of none, that is given a path and a whole kernel.
            self._write(path, text, written, append=False)
        else:
            for key in _SHELL:
                command = named.get(key)
                if isinstance(command, list):
                    words = [one for one in cast("list[Any]", command) if isinstance(one, str)]
                    if words[:1] == ["apply_patch"]:
                        self._patch("".join(words[1:]), written)
                        break
                    command = words[-1] if words else None
                if isinstance(command, str):
                    self._run_shell(command, written)
                    break
        # A file that was written and then lost or moved in one call is not there.
        return [path for path in dict.fromkeys(written) if path in self.texts]

    def find_text(self, arguments: Any) -> str | None:
        """Return the kernel that a call passes on without a file, such as `submit(code=…)`."""
        if isinstance(arguments, Mapping):
            named = cast("Mapping[str, Any]", arguments)
            if {_plain(str(key)) for key in named} & {*_PATHS}:
                return None  # a part of a file
            values = list(named.values())
        else:
            values = cast("list[Any]", arguments if isinstance(arguments, list) else [arguments])
        for text in reversed(values):
            if isinstance(text, str) and _is_whole_kernel(text):
                return text
        return None

    def _resolve(self, path: str) -> str:
        """Return the key of a path: absolute if the folder is known, else that of a known file."""
        path = path.replace("\\", "/")
        if not path.startswith(("/", "~")) and self._folder:
            path = posixpath.join(self._folder, path)
        path = posixpath.normpath(path)
        if path in self.texts:
            return path
        # The same file under a relative and an absolute name, if no other can be meant.
        is_whole = path.startswith("/")
        same = [
            known
            for known in self.texts
            if known.startswith("/") != is_whole
            and (path.endswith(f"/{known}") if is_whole else known.endswith(f"/{path}"))
        ]
        return same[0] if len(same) == 1 else path

    def _write(
        self, path: str, text: str | None, written: list[str], *, append: bool = False
    ) -> None:
        key = self._resolve(path)
        if append and text is not None:
            before = self.texts.get(key)
            text = None if before is None else before + text
        if text is None or len(text) > MAX_CHARACTERS:
            self._lose(path)
        elif key in self.texts or len(self.texts) < MAX_FILES:
            self.texts[key] = text
            written.append(key)

    def _lose(self, path: str) -> None:
        if self.texts.pop(self._resolve(path), None) is not None:
            self.lost += 1

    def _change(self, path: str, change: Callable[[str], str | None], written: list[str]) -> None:
        text = self.texts.get(self._resolve(path))
        if text is not None:
            self._write(path, change(text), written)

    def _patch(self, patch: str, written: list[str]) -> None:
        """Apply a patch in the form of Codex; one that does not fit changes nothing."""
        lines = patch.split("\n")
        at = next((i for i, line in enumerate(lines) if line.strip() == "*** Begin Patch"), None)
        if at is None:
            return
        sections: list[tuple[str, str, list[str]]] = []
        for line in lines[at + 1 :]:
            if line.startswith("*** End Patch"):
                break
            head = re.fullmatch(r"\*\*\* (Add|Update|Delete) File: (.+)", line.rstrip())
            if head is not None:
                sections.append((head[1], head[2], []))
            elif sections:
                sections[-1][2].append(line)
        for kind, path, body in sections:
            if kind == "Delete":
                self.texts.pop(self._resolve(path), None)
            elif kind == "Add":
                text = "".join(f"{line[1:]}\n" for line in body if line.startswith("+"))
                self._write(path, text, written)
            else:
                moved = None
                if body and body[0].startswith("*** Move to: "):
                    moved = body.pop(0).removeprefix("*** Move to: ").strip()
                self._change(path, lambda text, body=body: _apply_hunks(text, body), written)
                if moved is not None:
                    self._copy(path, moved, written, move=True)

    def _copy(self, source: str, target: str, written: list[str], *, move: bool) -> None:
        key = self._resolve(source)
        if target.endswith("/"):
            target += posixpath.basename(source)
        text = self.texts.get(key)
        if move:
            self.texts.pop(key, None)
        self._write(target, text, written)

    def _run_shell(self, command: str, written: list[str]) -> None:
        """Follow a shell command, or what is typed into a terminal."""
        if len(command) > _MAX_COMMAND or _INTERESTING.search(command) is None:
            return
        for one in _parse_shell(command.replace("\r\n", "\n")):
            self._run_command(one, written)

    def _run_command(self, command: _Command, written: list[str]) -> None:
        words = command.words
        while words and re.fullmatch(r"[A-Za-z_]\w*=.*|sudo|time|nohup|then|do|else|!|{", words[0]):
            words.pop(0)
        name = posixpath.basename(words[0]) if words else ""
        operands = [one for one in words[1:] if not one.startswith("-")]
        target, text = command.target, command.text
        if name == "tee" and operands:
            for path in operands:
                self._write(path, text, written, append=bool({"-a", "--append"} & {*words}))
        elif target not in (None, "/dev/null"):
            is_body = name == "cat" and not operands and command.has_body
            if is_body or name in ("", ":", "true"):
                self._write(target, text if is_body else "", written, append=command.appends)
            elif name == "cat" and len(operands) == 1 and not command.appends:
                self._copy(operands[0], target, written, move=False)
            else:
                self._lose(target)
        elif name in ("cd", "pushd"):
            folder = operands[0] if operands else ""
            is_known = folder.startswith("/") or (self._folder and not re.search("[$`~*]", folder))
            joined = posixpath.join(self._folder, folder)
            self._folder = posixpath.normpath(joined) if folder and is_known else ""
        elif name == "sed" and any(re.match(r"-[nErsz]*i|--in-place", one) for one in words[1:]):
            self._run_sed(words[1:], written)
        elif name in ("cp", "mv", "install") and len(operands) == 2:
            self._copy(operands[0], operands[1], written, move=name == "mv")
        elif name in ("rm", "unlink"):
            for path in operands:
                self.texts.pop(self._resolve(path), None)
        elif name in ("apply_patch", "applypatch"):
            self._patch(text or "".join(operands), written)
        elif name in _SHELLS and "-c" in "".join(words[1:2]) and len(words) > 2:
            self._run_shell(words[2], written)
        elif _PYTHON.fullmatch(name):
            script = words[words.index("-c") + 1] if "-c" in words[:-1] else text
            if script is not None:
                self._run_python(script, written)
        elif name in _CHANGERS or (name == "git" and _GIT_CHANGERS & {*operands}):
            known = [one for one in operands if self._resolve(one) in self.texts]
            # Without a name, a patch may change any file.
            for path in known or ([] if name in ("perl", "vim", "dd") else [*self.texts]):
                self._lose(path)

    def _run_sed(self, words: list[str], written: list[str]) -> None:
        scripts: list[str] = []
        files: list[str] = []
        extended = False
        at = 0
        while at < len(words):
            word = words[at]
            if word in ("-e", "--expression"):
                at += 1
                scripts += words[at : at + 1]
            elif word.startswith("-"):
                extended = extended or bool(re.match(r"-[a-z]*[Er]|--regexp-extended", word))
            elif not scripts:
                scripts.append(word)
            elif word:  # `sed -i ''` of macOS
                files.append(word)
            at += 1

        def change(text: str) -> str | None:
            changed: str | None = text
            for script in scripts:
                changed = None if changed is None else _apply_sed(changed, script, extended)
            return changed

        for path in files:
            self._change(path, change, written)

    def _run_python(self, script: str, written: list[str]) -> None:
        """Follow a script that replaces literal texts in files and does nothing else to them."""
        if "open" not in script and "write_text" not in script:
            return
        tree = parse_python(script)
        names: dict[str, str | None] = {}
        """Values of variables that are texts; None for any other value."""

        def path_of(node: ast.expr | None) -> str | None:
            if isinstance(node, ast.Call) and node.args and _callee(node) in ("Path", "str"):
                return path_of(node.args[0])
            return value_of(node)

        def value_of(node: ast.expr | None) -> str | None:
            match node:
                case ast.Constant(value=str(text)):
                    return text
                case ast.Name(id=name):
                    return names.get(name)
                case ast.BinOp(left=left, op=ast.Add(), right=right):
                    first, second = value_of(left), value_of(right)
                    return None if first is None or second is None else first + second
                case ast.Call(func=ast.Attribute(value=opened, attr="read"), args=[]):
                    if isinstance(opened, ast.Call) and _callee(opened) == "open" and opened.args:
                        return read(path_of(opened.args[0]))
                    return files.get(opened.id) if isinstance(opened, ast.Name) else None
                case ast.Call(func=ast.Attribute(value=path, attr="read_text")):
                    return read(path_of(path))
                case ast.Call(func=ast.Attribute(value=inner, attr="replace"), args=[old, new, *n]):
                    text, first, second = value_of(inner), value_of(old), value_of(new)
                    if text is None or first is None or second is None or not first:
                        return None
                    if not n:
                        return text.replace(first, second)
                    if isinstance(n[0], ast.Constant) and isinstance(n[0].value, int):
                        return text.replace(first, second, n[0].value)
                    return None
                case ast.Call(func=ast.Name(id="Path" | "str"), args=[inner]):
                    return value_of(inner)
                case _:
                    return None

        def read(path: str | None) -> str | None:
            return None if path is None else self.texts.get(self._resolve(path))

        def write(path: str | None, text: str | None) -> None:
            if path is None or (text is not None and len(text) > MAX_CHARACTERS):
                lose_all()
            else:
                self._write(path, text, written)

        def lose_all() -> None:
            """Forget every known file that the script names."""
            for known in [*self.texts]:
                if posixpath.basename(known) in script:
                    self._lose(known)

        files: dict[str, str | None] = {}
        """Texts of open files, by the name of the variable."""
        targets: dict[str, str | None] = {}
        """Paths of files that are open for writing."""

        def run(statements: Sequence[ast.stmt]) -> None:
            for statement in statements:
                match statement:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        names[name] = path_of(value)
                        if isinstance(value, ast.Call) and _callee(value) == "open":
                            open_as(name, value)
                    case ast.Expr(
                        value=ast.Call(func=ast.Attribute(value=path, attr="write_text"), args=args)
                    ) if args:
                        write(path_of(path), value_of(args[0]))
                    case ast.Expr(
                        value=ast.Call(func=ast.Attribute(value=opened, attr="write"), args=[text])
                    ):
                        if isinstance(opened, ast.Call) and _callee(opened) == "open":
                            path = path_of(opened.args[0]) if opened.args else None
                            write(path, value_of(text) if _mode(opened) == "w" else None)
                        elif isinstance(opened, ast.Name) and opened.id in targets:
                            write(targets[opened.id], value_of(text))
                            targets[opened.id] = None  # a second write would append
                        elif isinstance(opened, ast.Name) or "open" in ast.dump(opened):
                            lose_all()
                    case ast.With(items=[item], body=body) if (
                        isinstance(item.context_expr, ast.Call)
                        and _callee(item.context_expr) == "open"
                        and isinstance(item.optional_vars, ast.Name)
                    ):
                        open_as(item.optional_vars.id, item.context_expr)
                        run(body)
                    case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Pass():
                        pass
                    case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
                        pass
                    case _:
                        # Anything else may write, or change what is written.
                        if re.search(r"write|open\(", ast.unparse(statement)):
                            lose_all()
                        for node in ast.walk(statement):
                            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                                names[node.id] = None

        def open_as(name: str, call: ast.Call) -> None:
            path = path_of(call.args[0]) if call.args else None
            if _mode(call) == "r":
                files[name] = read(path)
            else:
                targets[name] = path if _mode(call) == "w" else None

        if tree is None:
            if re.search(r"write", script):
                lose_all()
        else:
            run(tree.body)


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _first_text(values: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((values[name] for name in names if isinstance(values.get(name), str)), None)


def _callee(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _mode(call: ast.Call) -> str:
    given = call.args[1] if len(call.args) > 1 else None
    given = next((one.value for one in call.keywords if one.arg == "mode"), given)
    if given is None:
        return "r"
    mode = given.value if isinstance(given, ast.Constant) else None
    return {"r": "r", "rt": "r", "w": "w", "wt": "w"}.get(str(mode), "unknown")


def _edit(text: str, arguments: Mapping[str, Any]) -> str | None:
    """Return a text with all edits of a call, or None if one of them does not fit exactly."""
    diff = _first_text(arguments, ("diff",))
    if diff is not None:
        for old, new in _SEARCH.findall(diff):
            if text.count(old) != 1:
                return None
            text = text.replace(old, new, 1)
        return text
    several: Any = next(
        (arguments[name] for name in ("edits", "edit", "replacements") if name in arguments), None
    )
    if isinstance(several, str):
        try:
            several = text_files.parse_json(several, "edits")
        except ImportFailed:
            return None
    listed = cast("list[Any]", several if isinstance(several, list) else [several or arguments])
    for one in listed:
        if not isinstance(one, Mapping):
            return None
        edit = {_plain(str(key)): value for key, value in cast("dict[str, Any]", one).items()}
        old, new = _first_text(edit, _OLD), _first_text(edit, _NEW)
        if not old or new is None:
            return None
        expected = edit.get("expectedreplacements", arguments.get("expectedreplacements"))
        is_all = True in (edit.get("replaceall"), edit.get("allowmultiple"))
        if is_all or (isinstance(expected, int) and text.count(old) == expected):
            text = text.replace(old, new)
        elif text.count(old) == 1:
            text = text.replace(old, new, 1)
        else:
            return None
        if len(text) > MAX_CHARACTERS:
            return None
    return text


def _insert(text: str, arguments: Mapping[str, Any]) -> str | None:
    line = next((arguments[n] for n in ("insertline", "line") if n in arguments), None)
    new = _first_text(arguments, ("inserttext", "newstr", "newstring", "text", "content"))
    lines = text.splitlines(keepends=True)
    if not isinstance(line, int) or new is None or not 0 <= line <= len(lines):
        return None
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines[:line], new if new.endswith("\n") else f"{new}\n", *lines[line:]])


def _apply_hunks(text: str, body: Sequence[str]) -> str | None:
    """Return a text with the hunks of a patch; each is searched from the end of the one before."""
    lines = text.split("\n")
    hunks: list[tuple[str, list[str], list[str]]] = []
    for line in body:
        if line.startswith("@@"):
            hunks.append((line[2:].strip().strip("@").strip(), [], []))
        elif line.startswith("***"):
            continue
        else:
            if not hunks:
                hunks.append(("", [], []))
            kind, rest = line[:1], line[1:]
            if kind in ("", " ", "-"):
                hunks[-1][1].append(rest)
            if kind in ("", " ", "+"):
                hunks[-1][2].append(rest)
    start = 0
    for head, old, new in hunks:
        # The newline at the end of a patch is no line of it.
        if old and new and old[-1] == new[-1] == "" and body[-1] == "":
            old, new = old[:-1], new[:-1]
        if head:
            found = [at for at in range(start, len(lines)) if lines[at].strip() == head]
            start = found[0] + 1 if found else start
        places = [
            at for at in range(start, len(lines) - len(old) + 1) if lines[at : at + len(old)] == old
        ]
        if not old or not places:
            return None
        lines[places[0] : places[0] + len(old)] = new
        start = places[0] + len(new)
    return "\n".join(lines)


def _apply_sed(text: str, script: str, extended: bool) -> str | None:
    """Return a text after one command of sed, or None unless its effect is certain."""
    script = script.strip()
    address = _ADDRESS.match(script)
    command = script[address.end() :].lstrip() if address else script
    lines = text.splitlines(keepends=True)
    first, last = 0, len(lines)
    if address is not None:
        first = int(address[1]) - 1 if address[1] else len(lines) - 1
        end = address[2] or (address[1] if address[1] else None)
        last = len(lines) if end in (None, "$") else int(end)
    if command == "d" and address is not None and first >= 0:
        return "".join([*lines[:first], *lines[max(first, last) :]])
    match = _SUBSTITUTE.match(command)
    if match is None or first < 0:
        return None
    mark = match["d"]
    new, found, flags = command[match.end() :].rpartition(mark)
    if not found or not {*flags} <= {"g"} or re.search(rf"(?<!\\){re.escape(mark)}", new):
        return None
    old = _unescape(match["old"], mark, _SPECIAL[extended])
    new = _unescape(new, mark, "&")
    if not old or new is None or "\n" in old:
        return None
    count = -1 if flags == "g" else 1
    changed = [line.replace(old, new, count) for line in lines[first:last]]
    return "".join([*lines[:first], *changed, *lines[last:]])


def _unescape(pattern: str, mark: str, special: str) -> str | None:
    """Return the text that a pattern stands for, or None if it is more than a literal text."""
    text: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            following = pattern[at + 1 : at + 2]
            if not following or following not in f"{mark}\\/{special}\"'&":
                return None
            text.append(following)
            at += 2
            continue
        if character in special:
            return None
        text.append(character)
        at += 1
    return "".join(text)


@dataclass
class _Command:
    """A simple command of a shell."""

    words: list[str] = field(default_factory=list[str])
    target: str | None = None
    """File that its output goes to."""
    appends: bool = False
    has_body: bool = False
    """Whether it reads a heredoc."""
    text: str | None = None
    """The heredoc, unless the shell replaces something in it."""


def _parse_shell(text: str) -> Iterator[_Command]:
    """Yield the simple commands of a shell text, up to a quote or a heredoc that is not closed."""
    command, word, redirects = _Command(), None, ""
    heredocs: list[tuple[_Command, re.Match[str]]] = []
    at = 0
    while at <= len(text):
        match = _TOKEN.match(text, at)
        kind = "end" if match is None or at == len(text) else str(match.lastgroup)
        token = "" if match is None or kind == "end" else match[0]
        if kind == "end" and at < len(text):
            return  # a quote that is not closed
        at += len(token)
        if kind in ("plain", "single", "double", "escaped"):
            word = (word or "") + _unquote(kind, token)
            continue
        if kind == "comment" and word is not None:
            at -= len(token) - 1
            word += "#"
            continue
        if word is not None:
            if redirects in (">", ">>", ">|", "&>"):
                command.target, command.appends = word, redirects == ">>"
            elif not redirects and not (kind == "redirect" and word in ("0", "1", "2")):
                command.words.append(word)
            elif not redirects and word == "2":
                token = "2>"  # errors go there, not the output
            word, redirects = None, ""
        if kind == "heredoc" and match is not None:
            command.has_body = True
            heredocs.append((command, match))
        elif kind == "redirect":
            redirects = token
        elif token == "|" and command.words == ["cat"] and command.has_body:
            # `cat <<EOF | tee FILE`: the next command reads the text.
            following = _Command(has_body=True)
            heredocs = [(following if one is command else one, mark) for one, mark in heredocs]
            command = following
        elif kind in ("operator", "newline", "end"):
            if kind == "newline":
                for reader, mark in heredocs:
                    end = re.compile(
                        rf"^{chr(9) + '*' if mark['tabs'] else ''}"
                        rf"{re.escape(mark['quoted'] or mark['name'])}[ \t]*$",
                        re.MULTILINE,
                    ).search(text, at)
                    if end is None:
                        return
                    body = text[at : end.start()]
                    if mark["tabs"]:
                        body = re.sub(r"^\t+", "", body, flags=re.MULTILINE)
                    # The shell replaces these in a heredoc whose mark is not quoted.
                    is_exact = mark["quoted"] or mark["escape"] or not re.search(r"[$`\\]", body)
                    reader.text = body if is_exact else None
                    at = min(end.end() + 1, len(text))
                    yield reader
                heredocs = []
            if not command.has_body:
                yield command
            command, redirects = _Command(), ""
        if kind == "end":
            return


def _unquote(kind: str, token: str) -> str:
    if kind == "single":
        return token[1:-1]
    if kind == "double":
        return re.sub(r'\\([$`"\\])', r"\1", token[1:-1].replace("\\\n", ""))
    return token if kind == "plain" else token[1:].replace("\n", "")
