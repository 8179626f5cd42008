"""Every command that opens a lake, with arguments that make it do its work on the starter's lake.

`test_damage` compares the list with the commands of the rooms, so that a new one is not forgotten.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import builders
from new_lakes import copy_starter_lake, give_id

import store
from store.importers import generated, starter
from store.importers.reading.pieces import run_import
from store.lake.location import FolderLocation
from store.upkeep import history, maintenance

READS: dict[str, str] = {
    "store query": "'SELECT count(*) AS n FROM kernels'",
    "store shell": "",
    "store tables": "",
    "store views": "leaderboard",
    "store describe": "kernels",
    "store log": "",
    "store diff": "1 2",
    "store tag list": "",
    "store show": "diag_matmul",
    "store best": "",
    "store receipt": "JUDGED",
    "store headline": "",
    "store report": "--out report.html",
    "store mcp": "",
    "store export cuda-l1": "exported --suite starter",
    "store export flashinfer-trace": "exported --suite starter",
    "store export jsonl": "exported",
    "store export kernelbench-run": "exported --suite starter",
    "store export parquet": "exported",
    "store publish": "someone/lake --tag v1 --dry-run",
    "store rejected": "",
    "store check": "--full",
    "store backup": "copy",
    "evaluators findings": "",
    "evaluators withdraw": "",
    "evaluators run": "--on cpu --dry-run",
}
"""Commands that write nothing to a lake."""
WRITES: dict[str, str] = {
    "store tag add": "v2",
    "store tag rm": "v1",
    "store import kernels": "KERNELS",
    "store pull": "someone/lake",
    "store restore": "BACKUP",
    "store init": "",
    "store compact": "--remove-orphans --yes",
    "store expire": "--older-than-days 0",
    "store move": "LAKE moved",
    "pipelines run": "sft --out dataset",
    "evaluators audit": "",
    "evaluators quarantine": "KERNEL --why tried",
    "evaluators dismiss": "FINDING --why tried",
    "trainers rescore": "RUN",
}
ELSEWHERE = {
    "store compare": "needs two authors; it reads as `store query` does",
    "store explore": "serves until it is stopped; its pages read as `store query` does",
    "store import": "its members write as `store import kernels` does",
    "store import detect": "names the format of a path",
    "store export": "its members are listed",
    "store verify": "needs no lake",
    "pipelines list": "needs no lake",
    "pipelines show": "needs no lake",
    "evaluators list": "needs no lake",
    "evaluators mcp": "serves as `store mcp` does",
    "evaluators serve": "serves until it is stopped; it writes as `evaluators run` does",
    "evaluators add": "judges a file for a minute; it writes as `evaluators run` does",
    "evaluators check": "judges a file for a minute; it reads a task as `store show` does",
    "evaluators reproduce": "judges for a minute; it reads a task as `store show` does",
    "evaluators tasks": "judges for minutes; it writes as `evaluators audit` does",
    "evaluators diagnose": "needs a GPU",
    "evaluators spread": "needs repeated sessions; it writes as `evaluators quarantine` does",
    "evaluators token": "needs no lake",
    "evaluators token create": "needs no lake",
    "evaluators token list": "needs no lake",
    "evaluators token revoke": "needs no lake",
    "evaluators doctor": "needs no lake",
    "trainers list": "needs no lake",
    "trainers show": "needs no lake",
    "trainers run": "trains; it reads and writes as `trainers rollout` does",
    "trainers rollout": "needs a policy; it writes as `evaluators run` does",
    "trainers replay": "needs a training; it reads as `trainers rescore` does",
}
"""Commands that are not tried, and why."""


def make_lake(folder: Path) -> dict[str, str]:
    """Make a lake with files of loads and of compaction, inlined rows and a tag.

    Returns what the words in capitals stand for.
    """
    copy_starter_lake(folder)
    give_id(FolderLocation(folder))
    with store.writer(str(folder), author="tests") as writer:
        maintenance.compact(writer.location)
        run_import(writer, generated, None, generated.Config(count=3))
        maintenance.compact(writer.location)
        history.add_tag(writer, "v1", None, None)
        writer.append({"kernels": [builders.kernel("inlined")]}, "inlined")
        with writer.reader() as lake:
            ids = lake.sql(
                "SELECT min(run_id) AS RUN, min(kernel_id) AS KERNEL, "
                "(SELECT min(finding_id) FROM findings) AS FINDING, "
                "(SELECT min(kernel_id) FROM speedups) AS JUDGED FROM generations"
            ).one()
        writer.location.read_salt()
    assert ids is not None
    copy = folder.with_name(f"{folder.name} backup")
    maintenance.backup(FolderLocation(folder), copy)
    names = {"KERNELS": str(starter.FOLDER), "BACKUP": str(copy)}
    return {**names, **{name: str(value) for name, value in ids.items()}}


def list_words(command: str, names: dict[str, str]) -> list[str]:
    """Return the words of a command."""
    arguments = {**READS, **WRITES}[command]
    return [*command.split(), *(names.get(word, word) for word in shlex.split(arguments))]
