"""Commands in README and docs run in the order of their page, links work, pages are short.

A block below `<!-- needs: GPU -->` (or server, Hub, data, minutes) does not run, nor does a command
with a word in capitals that stands for something else; its options must be in its `--help`.

`python tests/test_documents.py PAGE` writes the outputs of a page anew, as a terminal shows them.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

import commands
import pytest
from new_lakes import copy_starter_lake

from trainers.cli.kf import VERBS

ROOT = Path(__file__).parents[1]
ROOMS = ("store", "evaluators", "pipelines", "trainers", "kf")
MOST_WORDS = 28_000
COUNTED_ELSEWHERE = re.compile(r"CHANGELOG|tests/|docs/tables|docs/runs/PROTOCOL")
FENCE = re.compile(
    r"^(?:<!-- needs: (?P<needs>\w+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
PLACEHOLDER = re.compile(r"(?<![A-Za-z0-9=:-])[A-Z][A-Z_]+(?![A-Za-z0-9=])|…")
"""A word that stands for something else, such as DIR; NAME=value and H200 do not."""
GROUPS = {
    "store import", "store export", "store tag", "pipelines run", "trainers run",
    "evaluators token",
}  # fmt: skip
"""Commands whose next word is a command, too."""
BRIEF = (
    "--calls", "4", "--no-robustness", "--no-diagnosis", "--draw-shapes", "0",
    "--timing-s", "0.1", "--timing-limit-s", "0.3",
)  # fmt: skip
SHORTER = {
    "evaluators check": BRIEF,
    "evaluators add": BRIEF,
    "evaluators run": (*BRIEF, "--limit", "2"),
    "trainers run": ("--steps", "1", "--tasks", "diag_matmul", "--prompts-per-step", "1"),
}
"""Options with which commands take less time than on a page."""
SHOWN_LINES = 100
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "HF_ENDPOINT": "http://127.0.0.1:9", "NO_COLOR": "1"}


@dataclass(frozen=True)
class Command:
    """A command of a page, and the output that the page shows."""

    words: tuple[str, ...]
    needs: str | None
    line: str
    output: str

    @property
    def room(self) -> tuple[str, ...]:
        """The command of a room, also behind a launcher and for `kf`; none for other programs."""
        words = self.words
        if words[0] in ("torchrun", "accelerate"):
            words = words[1 + max(words.index(one) for one in ("-m", "--module") if one in words) :]
        if words[0] == "kf" and words[1:] and words[1] in VERBS:
            words = (*VERBS[words[1]][0].split(), *words[2:])
        return words if words[0] in ROOMS else ()

    @property
    def runs(self) -> bool:
        """Whether the command can run here as it is."""
        named = any(PLACEHOLDER.search(word) for word in self.words if " " not in word)
        return self.needs is None and not named and self.words[0] in ROOMS


def list_pages() -> list[Path]:
    """Return the pages that are written by hand."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    names = listed.stdout.split() or [str(one.relative_to(ROOT)) for one in ROOT.rglob("*.md")]
    kept = sorted(name for name in names if not COUNTED_ELSEWHERE.match(name))
    return [ROOT / name for name in kept if (ROOT / name).is_file() and not name.startswith(".")]


PAGES = list_pages()
OTHERS = [page for page in PAGES if page != ROOT / "README.md"]


def split(text: str) -> tuple[str, ...] | None:
    """Return the words of a command; None if it goes on in the next line."""
    if text.rstrip().endswith(("\\", "&&")):
        return None
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError:
        return None
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words.pop(0)
    return tuple(words)


def read_commands(page: str) -> Iterator[Command]:
    """Yield the commands of a page: lines of plain blocks, and those after `$ ` in a console."""
    for block in FENCE.finditer(page):
        if block["language"] not in ("", "console"):
            continue
        lines = block["text"].splitlines(keepends=True)
        is_console = any(line.startswith("$ ") for line in lines)
        while lines:
            line = lines.pop(0)
            if is_console and not line.startswith("$ "):
                continue
            text = line.removeprefix("$ ")
            while (words := split(text)) is None and lines:
                text += lines.pop(0)
            output = ""
            while is_console and lines and not lines[0].startswith("$ "):
                output += lines.pop(0)
            for is_separator, part in groupby(words or (), lambda word: word == "&&"):
                if not is_separator:
                    yield Command(tuple(part), block["needs"], text, output)


def run(command: Command, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return commands.run(
        [*command.words, *more], cwd=folder, env={**os.environ, **ENVIRONMENT}, timeout=900
    )


def run_program(text: str, folder: Path) -> None:
    (folder / "program.py").write_text(text, "utf-8")
    env = {**os.environ, **ENVIRONMENT}
    done = commands.run(["program.py"], cwd=folder, env=env)
    assert done.returncode == 0, done.stderr


def prepare(page: str, folder: Path) -> None:
    """Make what a page's commands start from: our folders, its kernel, the lake, its run."""
    for name in ("docs", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    kernel = re.search(r"```python\n([^`]*class ModelNew[^`]*)```", page)
    if kernel:
        (folder / "my_kernel.py").write_text(kernel[1], "utf-8")
    if "store import starter" not in "".join(one.line for one in read_commands(page)):
        copy_starter_lake(folder / "lake")
    logging = re.search(r"```python\n(import store\n[^`]*store[.]run\([^`]*)```", page)
    if logging:
        run_program(logging[1], folder)


def write_shown_file(command: Command, folder: Path) -> bool:
    """Write the file that `cat FILE` of a page shows; say whether the command is one."""
    if command.words[0] != "cat" or not command.output:
        return False
    file = folder / command.words[1]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(command.output, "utf-8")
    return True


@cache
def read_help(*words: str) -> str:
    done = commands.run([*words, "--help"], cwd=ROOT, env={**os.environ, **ENVIRONMENT})
    assert done.returncode == 0, f"{shlex.join(words)} --help: {done.stderr}{done.stdout}"
    return done.stdout


def check_options(words: tuple[str, ...]) -> None:
    """Require that a command of a room exists and takes the options that a page gives it."""
    size = 3 if " ".join(words[:2]) in GROUPS else 2
    command = tuple(word for word in words[:size] if not word.startswith("-"))
    if any(PLACEHOLDER.search(word) for word in command):
        return
    text = read_help(*command)
    if len(command) < size:
        return
    for word in words[1:]:
        if re.fullmatch(r"--[a-z][a-z-]+(=.*)?", word) and word != "--help":
            option = word.partition("=")[0]
            positive = option.replace("--no-", "--", 1)
            assert option in text or positive in text, f"{shlex.join(command)} has no {option}"


def check_program(words: tuple[str, ...]) -> None:
    """Require that a program of ours exists and names the options that a page gives it."""
    target = words[2] if words[1] == "-m" else words[1]
    if not target.startswith(("benchmarks/", "lab/", "lab.", "tests/")):
        return
    place = ROOT / (target if target.endswith(".py") else target.replace(".", "/"))
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    text = "".join(file.read_text("utf-8") for file in files)
    for word in words[2:]:
        if re.fullmatch(r"--[a-z][a-z-]+", word):
            field = word[2:].removeprefix("no-").replace("-", "_")
            assert word in text or field in text, f"{target} has no {word}"


def try_page(page: Path, folder: Path, *, minutes: bool) -> int:
    """Run or check the commands of a page in order; return how many ran."""
    text = page.read_text("utf-8")
    prepare(text, folder)
    count = 0
    for command in read_commands(text):
        if write_shown_file(command, folder):
            continue
        if command.words[0] in ("python", "python3"):
            check_program(command.words)
        if not command.room:
            continue
        if not command.runs and not (minutes and command.needs == "minutes"):
            check_options(command.room)
            continue
        shorter = SHORTER.get(" ".join(command.room[:2]), ())
        is_wrong = "incorrect" in command.output or "rejected" in command.output
        done = run(command, folder, *(() if "--protocol" in command.words else shorter))
        shown = f"{page.relative_to(ROOT)}: {command.line}{done.stdout}{done.stderr}"
        assert done.returncode in ((0, 1) if is_wrong else (0,)), shown
        assert "Traceback" not in done.stderr, shown
        count += 1
    using = re.search(r"```python\n(import evaluators[^`]*load_best[^`]*)```", text)
    if using and page == ROOT / "README.md":
        run_program(using[1], folder)
    return count


def test_commands_of_the_readme_run_in_order(tmp_path: Path) -> None:
    assert try_page(ROOT / "README.md", tmp_path, minutes=False) >= 3


@pytest.mark.slow
def test_commands_of_the_readme_that_take_minutes_run(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="TRL is not installed")
    assert try_page(ROOT / "README.md", tmp_path, minutes=True) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("page", OTHERS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_other_pages_run_in_order(page: Path, tmp_path: Path) -> None:
    try_page(page, tmp_path, minutes=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_inside_sentences_exist(page: Path) -> None:
    for text in re.findall(r"`([^`]+)`", FENCE.sub("", page.read_text("utf-8"))):
        words = split(text.replace("\n", " ")) or ()
        if len(words) > 1 and words[0] in ROOMS and re.fullmatch(r"[a-z-]+", words[1]):
            check_options(Command(words, None, text, "").room)


def list_anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.M)
    }


def test_links_between_pages_lead_somewhere() -> None:
    broken: list[str] = []
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            if re.match(r"\w+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = page.parent / name if name else page
            known = file.exists() and (not anchor or anchor in list_anchors(file))
            broken += [] if known else [f"{page.relative_to(ROOT)}: {target}"]
    assert broken == []


def test_pages_are_short() -> None:
    words = {str(page.relative_to(ROOT)): len(page.read_text("utf-8").split()) for page in PAGES}
    longest = sorted(words.items(), key=lambda item: -item[1])[:8]
    assert sum(words.values()) <= MOST_WORDS, f"{sum(words.values())} words; the longest: {longest}"
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 130


def show(words: tuple[str, ...], folder: Path) -> str:
    """Run a command on a terminal of 100 columns; return what it prints there."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, SHOWN_LINES, 0, 0))
    process = subprocess.Popen(
        words, cwd=folder, stdout=follower, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": str(SHOWN_LINES)},
    )  # fmt: skip
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 1 << 16):
            shown += piece
    except OSError:
        pass
    process.wait()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode().replace("\r\n", "\n"))
    text = text.replace(str(folder), "/home/you/kernel-flywheel")
    return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())


def shorten(text: str) -> str:
    """Keep the beginning and the end of a long output, without empty lines."""
    lines = [line for line in text.splitlines(keepends=True) if line.strip()]
    return "".join(lines if len(lines) <= 14 else [*lines[:8], "…\n", *lines[-4:]])


def write_outputs(page: Path, folder: Path) -> None:
    """Run the commands of a page's consoles, and write what they print into it."""
    text = page.read_text("utf-8")
    prepare(text, folder)
    for command in read_commands(text):
        if write_shown_file(command, folder) or not command.runs:
            continue
        output = shorten(show(command.words, folder))
        if command.output:
            old = f"$ {command.line}{command.output}"
            text = text.replace(old, f"$ {command.line}{output}", 1)
    page.write_text(text, "utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        place = Path("/tmp") / f"documents-{os.getpid()}"
        place.mkdir()
        write_outputs(ROOT / name, place)
        shutil.rmtree(place)
