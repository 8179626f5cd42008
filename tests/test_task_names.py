"""Every command finds the task or kernel that a user names, by the same rules."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import builders as b
import pytest
from explorer_lakes import open_client

import store
from evaluators.scheduling import cases, task_audits
from evaluators.service.queue import Refused
from evaluators.service.server import LakeReads
from store.dossier import pages
from store.dossier.pages import read_task_names
from store.errors import UnknownName
from store.importers.reading import pieces

OLD, NEW, OTHER, UNNAMED = (b.task(name) for name in ("old", "new", "other", "unnamed"))
HEXADECIMAL = OTHER["task_id"][:6]
KERNELS = [b.kernel(str(number)) for number in range(17)]
DEVICE = {"name": "any processor", "kind": "cpu"}


@pytest.fixture(scope="module")
def url(empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a lake in which level1/9 names two tasks, and one name begins another task's id."""
    lake = tmp_path_factory.mktemp("names") / "lake"
    shutil.copytree(empty_lake, lake)
    tasks = [OLD, NEW, OTHER, UNNAMED]
    tables = {
        "tasks": tasks,
        "workloads": [b.workload(task) for task in tasks],
        "kernels": KERNELS,
        "task_labels": [
            b.label(OLD, "level1/9"),
            b.label(NEW, "level1/9", suite_revision="v0.1"),
            b.label(OLD, "level1/10"),
            b.label(NEW, HEXADECIMAL, suite="mine"),
        ],
    }
    with store.writer(str(lake), author="tests") as writer:
        writer.append(tables, "tasks with names")
    return str(lake)


@pytest.fixture
def lake(url: str) -> Iterator[store.Lake]:
    """Open that lake."""
    with store.open(url) as opened:
        yield opened


def show(url: str, wanted: str) -> str:
    with store.open(url) as lake:
        page = pages.read_page(lake, wanted)
    assert page.kind == "task"
    return page.row["task_id"]


def check(url: str, wanted: str) -> str:
    return store.ids.task_id(cases.read_task(wanted, url).code)


def audit(url: str, wanted: str) -> str:
    with store.open(url) as lake:
        [task] = task_audits.find_pending(lake, DEVICE, wanted)
    return task["task_id"]


def name_in_import(url: str, wanted: str) -> str | None:
    with store.open(url) as lake:
        config = pieces.SearchOrigin(task=wanted)
        return pieces.Import(lake, "shinka", config).task_id


def send_to_service(url: str, wanted: str) -> str:
    return LakeReads(store.Location.of(url)).find_task(wanted)


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("find", [show, check, audit, name_in_import, send_to_service])
@pytest.mark.parametrize(
    ("wanted", "task"),
    [
        (NEW["task_id"], NEW),
        (NEW["task_id"][:6].upper(), NEW),
        ("L1-10", OLD),
        ("kernelbench/level1/10", OLD),
        ("kernelbench/L1-10", OLD),
        ("kernelbench@v0.1/level1/9", NEW),
        (HEXADECIMAL, NEW),  # a name comes before an id that begins like it
        (OTHER["task_id"][:7], OTHER),
        (UNNAMED["task_id"][:12], UNNAMED),
    ],
)
def test_commands_take_the_same_names(
    url: str, find: Callable[[str, str], str], wanted: str, task: dict[str, Any]
) -> None:
    assert find(url, wanted) == task["task_id"]


def test_an_ambiguous_name_lists_names_that_are_not(lake: store.Lake) -> None:
    with pytest.raises(UnknownName, match='"L1-9" is ambiguous: it matches 2 tasks') as raised:
        store.find_task(lake, "L1-9")
    for revision, task in (("v0", OLD), ("v0.1", NEW)):
        name = f"kernelbench@{revision}/level1/9"
        assert f"{name} ({task['task_id'][:12]})" in str(raised.value.hint)
        assert store.find_task(lake, name)["task_id"] == task["task_id"]


def test_a_name_that_is_no_text_is_refused(lake: store.Lake) -> None:
    for find in (store.find_task, store.find_kernel):
        with pytest.raises(UnknownName, match="is not UTF-8") as raised:
            find(lake, "\udcff")
        str(raised.value).encode()


def test_an_audit_takes_all_tasks_with_a_name_and_refuses_a_name_without_tasks(
    lake: store.Lake,
) -> None:
    found = {task["task_id"] for task in task_audits.find_pending(lake, DEVICE, "level1/9")}
    assert found == {OLD["task_id"], NEW["task_id"]}
    with pytest.raises(UnknownName, match='Did you mean "level1/10"'):
        task_audits.find_pending(lake, DEVICE, "level1/100")


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("wanted", ["level1/100", OTHER["task_id"][:5], "", "%"])
def test_an_unknown_name_gets_the_forms_of_names(lake: store.Lake, wanted: str) -> None:
    with pytest.raises(UnknownName, match=f'no task "{wanted}"') as raised:
        store.find_task(lake, wanted)
    assert "first 6 characters of an id" in str(raised.value.hint)


def test_the_service_tells_unknown_names_from_ambiguous_ones(url: str) -> None:
    reads = LakeReads(store.Location.of(url))
    for wanted, status in (("level1/100", 404), ("L1-9", 422)):
        with pytest.raises(Refused) as raised:
            reads.find_task(wanted)
        assert raised.value.status == status
    assert reads.find_known("kernelbench@v0/level1/9") == OLD["task_id"]


@pytest.mark.slow
def test_the_page_of_a_task_has_its_name_as_address(url: str) -> None:
    with open_client(Path(url)) as client:
        whole = client.get(f"/task/{NEW['task_id']}")
        assert client.get(f"/task/{HEXADECIMAL}").text.count(NEW["task_id"][:12]) > 0
        assert "level1/9" in whole.text
        for name, task in (
            ("level1/10", OLD), ("kernelbench@v0/level1/9", OLD), ("kernelbench@v0.1/level1/9", NEW)
        ):  # fmt: skip
            assert task["task_id"][:12] in client.get(f"/task/{name}").text
            assert f"/task/{task['task_id']}.json" in client.get(f"/task/{name}").text
        ambiguous = client.get("/task/level1/9")
        assert ambiguous.status_code == 404
        assert "kernelbench@v0/level1/9" in ambiguous.text
        unknown = client.get("/task/levl1")
        assert unknown.status_code == 404
        assert "Did you mean" in unknown.text


def test_kernels_are_found_by_the_start_of_their_id(lake: store.Lake) -> None:
    ids = [kernel["kernel_id"] for kernel in KERNELS]
    for wanted in (ids[0], ids[0][:12].upper()):
        assert store.find_kernel(lake, wanted) == ids[0]
    for wanted in ("", "level1/9", ids[0] + "0"):
        with pytest.raises(UnknownName, match="no kernel"):
            store.find_kernel(lake, wanted)
    starts = [one[0] for one in ids]
    shared = max(starts, key=starts.count)  # 17 ids begin with 16 digits
    with pytest.raises(UnknownName, match="is ambiguous: it matches") as raised:
        store.find_kernel(lake, shared)
    assert min(one for one in ids if one[0] == shared)[:13] in str(raised.value.hint)


def test_names_of_all_tasks_are_those_that_are_read_for_one(lake: store.Lake) -> None:
    names = read_task_names(lake)
    for wanted in ("L1-9", "mine/" + HEXADECIMAL, OTHER["task_id"][:8], "none"):
        few = read_task_names(lake, wanted)
        assert few.match(wanted) == names.match(wanted)
