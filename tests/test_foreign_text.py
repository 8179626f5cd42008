"""No command of any room sends a raw control character, or a line that looks like a verdict.

Every text of a real lake, of files, of their names and of a server is hostile. Commands run as
their users run them: as processes, through a pipe and on a terminal of 80 columns.
"""

from __future__ import annotations

import importlib
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import commands
import pytest
from chat_server import ChatServer, completion, status
from cyclopts import App

import store
from store.receipts.receipt import make_receipt, write_receipt

ROOT = Path(__file__).parent.parent
FORGED = "mine.py on CPU: correct"
EVIL = (
    "\x1b[2J\x1b]0;pwned\x07\x1b[1;1H\r\x9b31m\x9d0;x\x9c\x7f\b\x85\u2028\u2029\u202e\u2066"
    f"\u200b\u200d\ufeff\u3164\U000e0041[bold red]x[/] %s {{}} \n{FORGED}\n\x1b[32m{FORGED}\x1b[0m"
)
WIDE = "w" * 75 + FORGED * 40
"""A text that a terminal of any width would break somewhere before a forged verdict."""
CODE = f"# {EVIL}\n{FORGED}\n" + "import torch\n" + f"class ModelNew:\n    '''{WIDE}'''\n"


CANDIDATE = f"""
import sys
import torch
from torch import nn
EVIL = {EVIL!r}
print("log " + EVIL, flush=True)
print(EVIL, file=sys.stderr, flush=True)
class ModelNew(nn.Module):
    def forward(self, x):
        raise type(EVIL.replace("\\0", ""), (ValueError,), {{}})(EVIL)
"""
TASK = f"""
import os
import torch
from torch import nn
for fd in (1, 2):
    try:
        os.write(fd, {EVIL!r}.encode())
    except OSError:
        pass
class Model(nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.randn(8)]
def get_init_inputs():
    return []
"""


@pytest.fixture(scope="session")
def rows() -> dict[str, list[dict[str, Any]]]:
    """Return rows of which every free text is hostile."""
    task = b.task("square", license=EVIL, source=EVIL)
    task["code"] += f"\n# {EVIL}"
    task["code"] = store.ids.normalize(task["code"])
    task["task_id"] = store.ids.task_id(task["code"])
    label = b.label(task, EVIL, title=EVIL + WIDE, suite=EVIL, family="f")
    policy = b.policy(EVIL, output_terms=EVIL)
    gpu = b.device("<b>GPU</b>`|", kind="cuda", model=EVIL)
    size = b.workload(task)
    run = b.run(EVIL, "training", config=json.dumps({"note": EVIL}), host=EVIL)
    kernels = [b.kernel(code=CODE + f"# {i}\n", path=f"{FORGED}\n{EVIL}.py") for i in range(3)]
    verdicts = [b.evaluation(one, task, size, gpu) for one in kernels[:2]]
    earlier = b.evaluation(kernels[1], task, size, gpu, version=0, minute=-9)
    failed = b.evaluation(kernels[2], task, size, gpu, "crash", message=EVIL + WIDE, log=EVIL)
    attempts = [
        b.generation(policy, task, kernels[0], run_id=run["run_id"], group_id="g", completion=EVIL,
                     finish_reason=EVIL),
        b.generation(policy, task, kernels[1], exemplars=[(kernels[0], 2.0)], minute=1,
                     run_id=run["run_id"], group_id="g", completion=EVIL, parse_error=EVIL),
    ]  # fmt: skip
    found = b.finding(kernels[0], quote=EVIL + WIDE, detector=EVIL)
    dataset = b.dataset(run, "d")
    return {
        "tasks": [task],
        "task_labels": [label],
        "splits": [b.split("f", suite=EVIL, rule=EVIL)],
        "workloads": [size],
        "devices": [gpu],
        "kernels": kernels,
        "kernel_features": [b.features(one) for one in kernels],
        "policies": [policy],
        "runs": [run],
        "generations": attempts,
        "evaluations": [*verdicts, earlier, failed],
        "timings": [
            arm
            for one, ms in zip((*verdicts, earlier), (1.0, 2.0, 2.1), strict=True)
            for arm in b.session(one, [ms] * 20, eager=[4.0] * 20)
        ],
        "analyses": [b.analysis(attempts[0], body=EVIL + "\n" + WIDE, author=EVIL)],
        "claims": [b.claim(task, kernels[0], source=EVIL, gpu=EVIL)],
        "findings": [found],
        "standings": [b.standing(found, why=EVIL + WIDE, author=EVIL)],
        "datasets": [dataset],
        "dataset_rows": [b.dataset_row(dataset, task, [kernels[0]])],
    }


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, rows: dict[str, list[dict[str, Any]]]) -> Path:
    """Return a folder with a lake, and with files whose names and contents are hostile."""
    made = tmp_path_factory.mktemp("hostile")
    with store.writer(str(made / "lake"), author="tests") as writer:
        writer.append(rows, "hostile")
    for room in ("pipelines", "trainers", "importers", "rewards", "evaluators"):
        own = made / "flywheel" / room
        own.mkdir(parents=True, exist_ok=True)
        (own / "broken.py").write_text(f'"""{EVIL}"""\n\x1b]0;x\x07 = = {EVIL}\n', "utf-8")
        (own / "raises.py").write_text(
            f'"""About {FORGED}."""\nraise ValueError({EVIL!r})\n', "utf-8"
        )
    bad = made / f"{EVIL}.py".replace("/", "_")
    bad.write_text(CODE + "\x1b[2J = =", "utf-8", errors="surrogatepass")
    kernels = made / "kernels"
    kernels.mkdir()
    (kernels / bad.name).write_text(CODE, "utf-8")
    (kernels / "task.py").write_text(TASK, "utf-8")
    (made / "bytes.json").write_bytes(b"\x1b[2J\xff\xfe\x9b31m\n" + FORGED.encode())
    with store.open(str(made / "lake")) as lake:
        receipt = make_receipt(lake, rows["kernels"][0]["kernel_id"])
    (made / "receipt.json").write_bytes(write_receipt(receipt | {"program": EVIL}))
    (made / "question.sql").write_text(f"SELECT '{EVIL}' FROM nowhere_\x1b[2J", "utf-8")
    return made


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FLYWHEEL_CATALOG": str(ROOT / "catalog.yaml"),
        "FLYWHEEL_CACHE": str(folder / "cache"),
        "FLYWHEEL_LAKE": str(folder / "lake"),
        "TERM": "xterm-256color",
        **more,
    }


TABLES = ("evaluations", "findings", "kernels", "analyses", "runs", "task_labels", "policies")
COMMANDS: dict[str, list[list[str]]] = {
    "store query": [
        ["FROM evaluations"], ["FROM policies", "--format", "csv"],
        ["FROM evaluations", "--format", "json"],
        [f'SELECT 1 AS "{EVIL}", [name] AS l, {{\'a\': name}} AS s FROM policies'],
        [f'FROM "{EVIL}"'], ["--file", "bytes.json"], ["SELECT 1", "--at", EVIL], [f"--{EVIL}"],
    ],
    "store show": [
        ["KERNEL"], ["TASK"], ["KERNEL", "--lineage"], ["KERNEL", "--format", "json"],
        ["CHILD", "--lineage"],
        ["TASK", "--format", "json"], [EVIL], [EVIL[-8:]],
    ],
    "store shell": [[]],
    "store tables": [["--at", EVIL], []],
    "store describe": [[EVIL], ["kernels"], ["verdicts"], ["--find", EVIL]],
    "store views": [["--sql", EVIL], []],
    "store log": [[], ["--format", "csv"]],
    "store tag add": [[EVIL], ["v1", "--note", EVIL], ["v2", "--at", EVIL]],
    "store tag list": [[], ["--format", "csv"], ["--format", "json"]],
    "store tag rm": [[EVIL]],
    "store diff": [["1"], ["1", "--table", "kernels"], ["1", "--format", "json"], [EVIL],
                   ["1", "--table", EVIL]],
    "store best": [[], [EVIL], ["--device", EVIL], ["--format", "json"]],
    "store compare": [["--by", "judge-version", "0", "1"],
                      ["--by", "judge-version", "0", "1", "--format", "json"],
                      ["--by", "judge-version", "0", "1", "--where", EVIL],
                      ["--by", "author", EVIL, EVIL], ["--by", "host", EVIL, "x"]],
    "store receipt": [["KERNEL"], [EVIL], ["KERNEL", "--device", EVIL], ["--schema"],
                      ["KERNEL", "--out", f"receipt {EVIL}"], ["KERNEL", "--sign", EVIL]],
    "store verify": [["receipt.json"], ["receipt.json", "--format", "json"], ["bytes.json"], [EVIL],
                     ["receipt.json", "--code", EVIL], ["receipt.json", "--task", "BAD"],
                     ["receipt.json", "--allowed-signers", EVIL]],
    "store headline": [[], [EVIL], ["--format", "json"]],
    "store init": [["--lake", "BAD"]],
    "store compact": [["--lake", EVIL]],
    "store expire": [["--older-than-days", EVIL]],
    "store check": [[]],
    "store backup": [[f"copy {EVIL}"], ["lake"]],
    "store restore": [[f"copy {EVIL}"], [EVIL]],
    "store rejected": [["--retry", EVIL], ["--discard", EVIL], []],
    "store move": [["lake", "kernels"], [EVIL, "moved"]],
    "store explore": [["--at", EVIL]],
    "store mcp": [["--at", EVIL], ["--host", EVIL, "--port", "0"], []],
    "store report": [["--out", f"report {EVIL}"], ["--run", EVIL], ["--run", "RUN"]],
    "store publish": [[f"a/{EVIL}", "--tag", "v1"], ["a/b", "--tag", EVIL],
                      ["a/b", "--tag", "v9", "--dry-run"],
                      ["a/b", "--tag", "v9", "--tables", EVIL]],
    "store pull": [[EVIL], [f"a/b@{EVIL}"]],
    "store import": [
        ["kernels", "kernels"], ["kernels", EVIL], ["kernels", "BAD"], [EVIL], ["broken"],
        ["raises"], ["cuda-l1", "BAD"], ["cuda-l1", "bytes.json"], ["kernelbench-run", "kernels"],
        ["trl-completions", "bytes.json"], ["published", "BAD"], ["flashinfer-trace", "kernels"],
        ["sakana", "bytes.json"], ["measured", "bytes.json"],
        ["rows", "BAD"], ["rows", "bytes.json"],
    ],
    "store import detect": [["kernels"], ["bytes.json"], ["BAD"], [EVIL]],
    "store export": [["jsonl", f"out {EVIL}"], [EVIL, "x"], ["parquet", "lake"]],
    "pipelines list": [[]],
    "pipelines show": [["broken"], ["raises"], [EVIL], ["contrastive-batch"]],
    "pipelines run": [
        ["contrastive-batch", "--explain", "TASK"], ["contrastive-batch", "--dry-run"],
        ["contrastive-batch", "--explain", EVIL], ["contrastive-batch", "--name", EVIL],
        ["sft", "--dry-run"], ["sft", "--out", f"sft {EVIL}"], ["broken"], ["raises"], [EVIL],
        ["rl-prompts", "--dry-run", "--format", "json"], ["rl-prompts", "--tokenizer", "BAD"],
        ["contrastive-batch", "--device", EVIL], ["rl-prompts", "--dry-run", "--suite", EVIL],
    ],
    "evaluators list": [[]],
    "evaluators doctor": [["--on", "cpu"]],
    "evaluators run": [["--evaluator", "raises"], ["--on", EVIL], ["--where", EVIL]],
    "evaluators tasks": [["--on", EVIL]],
    "evaluators check": [["BAD", "--task", EVIL, "--on", "cpu"], [EVIL, "--task", "x"]],
    "evaluators reproduce": [[EVIL], ["bytes.json"], ["receipt.json", "--on", "cpu"],
                             ["receipt.json", "--code", "BAD", "--task", EVIL]],
    "evaluators add": [["BAD", "--task", EVIL], [EVIL, "--task", "TASK"]],
    "evaluators audit": [["--detector", EVIL], ["--where", EVIL], [], ["--format", "json"],
                         ["--llm", f"http://{EVIL}", "--model", EVIL]],
    "evaluators findings": [[], ["KERNEL"], [EVIL], ["--format", "csv"], ["--format", "json"]],
    "evaluators quarantine": [["KERNEL", "--why", EVIL], [EVIL, "--why", "x"]],
    "evaluators dismiss": [["FINDING", "--why", EVIL]],
    "evaluators withdraw": [[], ["--yes"]],
    "evaluators spread": [["--dry-run"], []],
    "evaluators diagnose": [[EVIL]],
    "evaluators mcp": [["--on", EVIL], ["--host", EVIL, "--port", "0"]],
    "evaluators serve": [["--on", EVIL], ["--host", EVIL]],
    "evaluators token create": [[EVIL, "--scope", "read"], ["x", "--scope", EVIL]],
    "evaluators token list": [[], ["--format", "json"]],
    "evaluators token revoke": [[EVIL], ["x"]],
    "trainers list": [[]],
    "trainers show": [["broken"], ["raises"], [EVIL], ["sft"]],
    "trainers run": [["raises"], ["broken"], [EVIL], ["sft", "--preset", EVIL],
                     ["sft", "--dataset", EVIL, "--model", EVIL]],
    "trainers rollout": [["--dataset", EVIL, "--policy", EVIL],
                         ["--dataset", "x", "--policy", f"http://{EVIL}/v1#m"],
                         ["--dataset", "x", "--policy", "hf:BAD"],
                         ["--dataset", "x", "--policy", "scripted:BAD"]],
    "trainers rescore": [[EVIL], ["RUN"], ["RUN", "--rule", EVIL], ["RUN", "--rule", "raises"]],
    "trainers replay": [[EVIL, "--step", "0"], ["RUN", "--step", "0", "--trl", EVIL]],
}  # fmt: skip
"""Command lines by their command. `fill_words` puts ids and a file name into them."""
REPEATED: dict[str, list[list[str]]] = {
    "store query": [
        *(["FROM " + one, "--format", to] for one in TABLES for to in ("table", "csv", "json")),
        [f'SELECT 1 AS "{EVIL}"', "--format", "csv"],
        ["--file", "BAD"],
        ["--file", "question.sql"],
        ["SELECT 1", "--lake", EVIL],
        ["SELECT 1", "--format", EVIL],
        ["SELECT 1", "--catalog", "BAD"],
        ["--file", "x", "-v"],
    ],
    "store pull": [["a/b"]],
    "evaluators run": [["--suite", EVIL], ["--kernel", EVIL]],
}
"""Command lines whose like is above; `make test-all` tries them."""


def fill_words(words: list[str], folder: Path, rows: dict[str, list[dict[str, Any]]]) -> list[str]:
    known = {
        "KERNEL": rows["kernels"][0]["kernel_id"],
        "CHILD": rows["kernels"][1]["kernel_id"],
        "RUN": rows["runs"][0]["run_id"],
        "TASK": rows["tasks"][0]["task_id"],
        "FINDING": rows["findings"][0]["finding_id"],
    }
    bad = next(one.name for one in folder.iterdir() if one.name.endswith(".py"))
    return [known.get(word, word).replace("BAD", bad) for word in words]


def _paths(app: App, path: tuple[str, ...]) -> Iterator[str]:
    for name in app:
        if not name.startswith("-"):
            below = list(_paths(app[name], (*path, name)))
            yield from below or [" ".join((*path, name))]


def test_every_command_is_among_those_that_are_tried() -> None:
    found = {
        path
        for room in commands.ROOMS
        for path in _paths(importlib.import_module(f"{room}.cli.app").app, (room,))
    }
    assert len(found) > 35
    # The importers are commands of `store import` that are made when they are named.
    assert found == set(COMMANDS) - {"store import"}


def find_unseemly(text: str) -> list[str]:
    """Return what a text holds that no command may send: hidden characters, forged lines."""
    hidden = {
        f"{ord(char):x}"
        for char in set(text) - set("\n\t")
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") or char == "\u3164"
    }
    forged = [line[:80] for line in text.split("\n") if line.startswith(FORGED)]
    return [*hidden, *forged]


def run_command(
    folder: Path, words: list[str], stdin: str = "", **more: str
) -> tuple[int, str, str]:
    done = commands.run(words, cwd=folder, env=environment(folder, **more), stdin=stdin)
    return done.returncode, done.stdout, done.stderr


WITH_TORCH = ("evaluators check", "evaluators doctor")
"""Commands that start a judge, which takes seconds."""


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("name", "commands_of"),
    [
        *(
            # The check of a hostile candidate and of a hostile task is a test of its own.
            pytest.param(name, COMMANDS, id=name, marks=[pytest.mark.slow] * (name in WITH_TORCH))
            for name in COMMANDS
        ),
        *(
            pytest.param(name, REPEATED, id=f"{name}, repeated", marks=pytest.mark.slow)
            for name in REPEATED
        ),
    ],
)
def test_no_command_sends_hostile_text(
    folder: Path,
    rows: dict[str, list[dict[str, Any]]],
    tmp_path: Path,
    name: str,
    commands_of: dict[str, list[list[str]]],
) -> None:
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    typed = f"SELECT name, '{EVIL}' AS x FROM policies;\nFROM \"{EVIL}\";\n.views {EVIL}\n"
    wrong: list[object] = []
    for words in commands_of[name]:
        line = [*name.split(), *fill_words(words, own, rows)]
        # Nothing is to be reached: what the Hub's client says of it is foreign text, too.
        code, out, err = run_command(own, line, typed, HF_ENDPOINT="http://127.0.0.1:9")
        if code == 0 and "json" in words:
            json.loads(out)
        if code == 0 and "csv" in words:  # a cell of CSV may hold newlines, in quotes
            out = out.replace(FORGED, "")
        if code not in (0, 1, 2, 3) or find_unseemly(out) or find_unseemly(err):
            wrong.append((line, code, find_unseemly(out), find_unseemly(err), (out + err)[-1500:]))
    assert not wrong, wrong[0]


@pytest.mark.slow
def test_json_gives_the_stored_text_back(
    folder: Path, rows: dict[str, list[dict[str, Any]]]
) -> None:
    _, out, _ = run_command(
        folder, ["store", "query", "SELECT name FROM policies", "--format", "json"]
    )
    assert json.loads(out) == [{"name": rows["policies"][0]["name"]}]
    _, out, err = run_command(
        folder, ["store", "query", "SELECT name FROM policies", "--format", "csv"]
    )
    assert "\\x1b[2J" in out
    assert "1 cells hold characters that are shown as escapes" in err


# ---- on a terminal -------------------------------------------------------------------------------


def run_on_terminal(folder: Path, words: list[str], typed: str = "", columns: int = 80) -> str:
    """Return what a terminal of so many columns is sent by a command."""
    ours, theirs = pty.openpty()
    env = environment(folder, COLUMNS=str(columns), LINES="50", HF_ENDPOINT="http://127.0.0.1:9")
    process = subprocess.Popen(
        [sys.executable, "-m", *words], cwd=folder, env=env, stdin=theirs, stdout=theirs,
        stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, typed.encode())
    seen = b""
    began = time.monotonic()
    while time.monotonic() - began < 120:
        if not select.select([ours], [], [], 0.2)[0]:
            if process.poll() is not None:
                break
            continue
        try:
            part = os.read(ours, 1 << 16)
        except OSError:
            break
        if not part:
            break
        seen += part
    process.wait(60)
    os.close(ours)
    return seen.decode("utf-8").replace("\r\n", "\n")


OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A|\x1b\[\?2004[hl]|\r")
"""What rich and readline send: colors, the cursor hidden and shown, a line drawn anew."""


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "words",
    [
        ["store", "query", "FROM evaluations"], ["store", "show", "KERNEL"],
        ["store", "query", f"SELECT 1 FROM {'w' * 60}{FORGED.replace(' ', '_')}", "-v"],
        ["store", "import", "raises"], ["evaluators", "findings"],
        ["pipelines", "run", "contrastive-batch", "--explain", "TASK"],
        *(pytest.param(words, marks=pytest.mark.slow) for words in (
            ["store", "query", "FROM policies"],
            ["store", "query", "SELECT name, name AS n FROM policies", "--format", "csv"],
            ["store", "show", "TASK"], ["store", "show", "KERNEL", "--lineage"],
            ["store", "query", "--file", "BAD"], ["store", "import", "kernels", "kernels"],
            ["store", "--help"], ["pipelines", "list"], ["evaluators", "audit"],
            ["pipelines", "run", "contrastive-batch", "--dry-run"],
        )),
    ],
)  # fmt: skip
def test_a_terminal_is_sent_no_hostile_text(
    folder: Path, rows: dict[str, list[dict[str, Any]]], tmp_path: Path, words: list[str]
) -> None:
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    seen = run_on_terminal(own, fill_words(words, own, rows))
    plain = OURS.sub("", seen)
    assert find_unseemly(plain) == []
    # Nor where the terminal itself would begin a new row.
    for line in plain.split("\n"):
        assert not any(
            line[start:].startswith(FORGED[:12]) for start in range(80, len(line), 80)
        ), line
    assert plain.strip()


def test_the_shell_answers_on_a_terminal(folder: Path) -> None:
    typed = f"SELECT name FROM policies;\nSELECT '{FORGED}' AS a;\n.quit\n"
    seen = run_on_terminal(folder, ["store", "shell"], typed)
    assert "lake> " in seen
    assert "\\x1b[2J" in seen
    assert find_unseemly(OURS.sub("", seen)) == []


# ---- servers, candidates and tasks ---------------------------------------------------------------


def answer_with_code(asked: Any) -> dict[str, Any]:
    return completion([CODE], finish_reason=EVIL, reasoning=EVIL)


def answer_with_garbage(asked: Any) -> dict[str, Any]:
    return {"choices": EVIL}


@pytest.mark.parametrize(
    "answers",
    [
        [answer_with_code],
        pytest.param(
            [status(401, EVIL + WIDE), status(404, EVIL), status(500, EVIL), answer_with_garbage],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["code", "refusals"],
)
def test_what_an_endpoint_says_is_escaped(folder: Path, tmp_path: Path, answers: list[Any]) -> None:
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    made = run_command(own, ["pipelines", "run", "rl-prompts", "--out", "prompts"])
    assert made[0] == 0, made
    for answer in answers:
        with ChatServer(answer) as server:
            code, out, err = run_command(
                own,
                ["trainers", "rollout", "--dataset", "prompts", "--policy", f"{server.url}#{EVIL}",
                 "--no-judge", "--attempts", "1", "--retries", "0", "--timeout-s", "20"],
            )  # fmt: skip
        assert code in (0, 1), err
        assert "mine.py on CPU" in err or "kernels" in out
        assert find_unseemly(out) == find_unseemly(err) == []


@pytest.mark.slow
def test_a_candidate_and_a_task_cannot_write_a_verdict(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "candidate.py").write_text(CANDIDATE)
    (tmp_path / "task.py").write_text(TASK)
    before = store.open(str(folder / "lake")).snapshot
    code, out, err = check_candidate(folder, tmp_path / "candidate.py", tmp_path / "task.py")
    assert code == 1, err
    assert re.match(r"candidate\.py on .*: crash \(", out), out
    assert find_unseemly(out) == find_unseemly(err) == []
    assert "  | " in out
    assert store.open(str(folder / "lake")).snapshot == before


@pytest.mark.slow
def test_a_task_that_fails_cannot_write_a_verdict(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "candidate.py").write_text(CANDIDATE)
    (tmp_path / "wrong.py").write_text(f"raise ValueError({EVIL!r})\n")
    code, out, err = check_candidate(folder, tmp_path / "candidate.py", tmp_path / "wrong.py")
    assert code == 1
    assert find_unseemly(out) == find_unseemly(err) == []


def check_candidate(folder: Path, candidate: Path, task: Path) -> tuple[int, str, str]:
    words = ["evaluators", "check", str(candidate), "--on", "cpu", "--task", str(task)]
    return run_command(folder, words)
