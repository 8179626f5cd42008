"""The `kf` command: the daily commands of the four rooms under one name.

`kf check FILE` runs `evaluators check FILE`, with the same options, help and exit code. `kf` alone
prints what the lake has and what to do next.
"""

from __future__ import annotations

import importlib
import sys

import store
from store.commandline import echo, members
from store.commandline.members import Common, make_room_app
from store.errors import FIRST_ROWS

VERBS = {
    "check": ("evaluators check", "Judge a file of yours; store nothing."),
    "add": ("evaluators add", "Store a kernel for a task of the lake, and judge it."),
    "judge": ("evaluators run", "Judge the kernels that have no verdict on this device yet."),
    "query": ("store query", "Run one SELECT statement."),
    "show": ("store show", "Show what the lake knows about a task, a kernel or a run."),
    "receipt": ("store receipt", "Print what a kernel's numbers are computed from."),
    "verify": ("store verify", "Check a receipt; compute its numbers again."),
    "best": ("store best", "List the best kernel of each task."),
    "compare": ("store compare", "Compare two authors, devices, hosts or versions of the judge."),
    "explore": ("store explore", "Serve pages to read the lake in a browser."),
    "report": ("store report", "Write a report about the lake."),
    "import": ("store import", "Import kernels, verdicts and published figures."),
    "dataset": ("pipelines run", "Make a dataset."),
    "train": ("trainers run", "Train a policy."),
    "publish": ("store publish", "Publish a snapshot to the Hugging Face Hub."),
    "pull": ("store pull", "Merge a published lake into this one."),
    "serve": ("evaluators serve", "Judge kernels that clients send over HTTP."),
}
"""The command of a room that each verb runs, and what it does."""

app = make_room_app(
    "kf",
    """The daily commands of Kernel Flywheel, each a command of store, pipelines, evaluators or
trainers, which have the rest.

`kf` alone prints what the lake has and what to do next.""",
    ["kf import starter", "kf judge", "kf best", "kf check my_kernel.py --task diag_matmul"],
)
for verb, (command, about) in VERBS.items():
    app.command(lambda: None, name=verb, help=f"{about} (`{command}`)")


@app.default
def show_state(*, common: Common = Common()) -> None:  # noqa: B008
    """Print what the lake has and what to do next."""
    with store.open(common.lake) as lake:
        for line in describe_state(lake):
            echo.print_result(line)


def describe_state(lake: store.Lake) -> list[str]:
    """Return the state of a lake in lines, and up to three commands to type next."""
    from store.dossier.pages import read_judged_here

    [state] = lake.run(store.read_sql(__file__, "state")).rows()
    lines = [
        f"lake      {lake.location.url}, snapshot {lake.snapshot}",
        f"tasks     {state['tasks']}",
        f"kernels   {state['kernels']}, {state['judged']} with verdicts",
        f"datasets  {state['datasets']}",
        f"trainings {state['trainings']}",
    ]
    if not state["kernels"]:
        return [*lines, f"next      {echo.name_commands(FIRST_ROWS)}"]
    judged = read_judged_here(lake)
    if judged is not None:
        lines.append(f"ranking   {judged}")
    contended = judged is not None and "contended" in (judged.reason or "")
    unjudged = judged is None or not judged.correct
    steps = [
        ("kf judge", "judge the kernels without a verdict on this device", unjudged),
        ("kf judge --contended", "judge again, on a quiet machine", contended),
        ("kf dataset contrastive-batch", "make prompts from scored kernels", not state["datasets"]),
        ("kf best", "the best kernel of each task", True),
        ("kf check FILE --task TASK", "judge a file of yours", True),
        ("kf train contrastive --preset tiny", "train with real verdicts", True),
    ]
    chosen = [f"{command:35} {about}" for command, about, applies in steps if applies][:3]
    return [*lines, f"next      {chosen[0]}", *(f"          {step}" for step in chosen[1:])]


def main() -> None:
    """Run the command of a room that a verb stands for, or `kf` itself."""
    verb, *rest = members.move_common_options(app, sys.argv[1:]) or [""]
    if verb in VERBS or not {"--help", "-h"} & {*sys.argv}:  # its own help names both
        echo.use_names({command: f"kf {name}" for name, (command, _) in VERBS.items()})
    groups: list[members.Group] = []
    if verb == members.COMPLETION:
        # It needs the options of all commands.
        for name, (command, _) in VERBS.items():
            room, *words = command.split()
            module = importlib.import_module(f"{room}.cli.app")
            groups += [group for group in module.groups if group not in groups]
            del app[name]
            app.command(module.app[words[0]], name=name)
    if verb not in VERBS:
        members.run(app, *groups)
        return
    room, *words = VERBS[verb][0].split()
    sys.argv = [room, *words, *rest]
    importlib.import_module(f"{room}.cli.app").main()
