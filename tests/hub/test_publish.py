"""An edition of a lake: what is in it, what is not, and that it comes about in one step."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import builders
import commands
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hub import lakes
from hub.lakes import Edition
from hub.server import TOKEN, Fault, HubServer, Repo

import store
from store.cli import app as store_cli
from store.errors import FlywheelError, LakeUnreachable, RowsRejected, UnknownName
from store.hub import card, edition_writer
from store.hub.client import TRIES, Hub
from store.hub.edition_writer import MANIFEST, Options
from store.hub.publish import publish
from store.hub.pull import pull
from store.lake import attachment
from store.lake.location import FolderLocation, Location
from store.receipts.receipt import make_receipt
from store.upkeep import history, integrity, maintenance

# The client hands files to its HTTP library in a way that this one calls old.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
V1 = Options(tag="v1")
FEW = Options(tag="v1", tables=("policies",))
REPO = "lab/kernels"


def tables(files: dict[str, bytes]) -> dict[str, pa.Table]:
    """Return the tables of a repository by name."""
    found: dict[str, list[pa.Table]] = {}
    for path, data in files.items():
        if path.endswith(".parquet"):
            found.setdefault(path.split("/")[1], []).append(pq.read_table(io.BytesIO(data)))
    return {name: pa.concat_tables(parts) for name, parts in found.items()}


def texts(files: dict[str, bytes]) -> str:
    """Return all that can be read in a repository, as one text."""
    parts = [json.dumps(rows.to_pylist(), default=str) for rows in tables(files).values()]
    return "\n".join(parts + [data.decode("latin-1") for data in files.values()])


def test_one_commit_and_a_tag_and_the_second_time_nothing(
    rich_url: str, server: HubServer, hub: Hub
) -> None:
    with store.open(rich_url) as lake:
        snapshot = lake.snapshot
    first = publish(rich_url, REPO, FEW, hub=hub)
    repo = server.repos[REPO]
    assert repo.messages == [
        "initial commit",
        f"v1: snapshot {snapshot} of lake {_lake_id(rich_url)}",
    ]
    assert repo.tags == {"v1": repo.main} == {"v1": first.revision}
    sent = len(server.sent)
    with store.writer(rich_url, author="tests") as writer:
        writer.append({"policies": [builders.policy("later")]}, "after the tag")
    again = publish(rich_url, REPO, FEW, hub=hub)
    assert (again.fresh, again.revision, again.snapshot) == (False, first.revision, snapshot)
    assert len(repo.commits) == 2
    assert len(server.sent) == sent == len(set(server.sent))
    with store.open(rich_url) as lake:
        runs = lake.sql("SELECT config, snapshot_id FROM runs WHERE kind = 'publish'").rows()
        assert lake.sql("SELECT name, snapshot_id FROM tags").rows() == [
            {"name": "v1", "snapshot_id": snapshot}
        ]
    assert [row["snapshot_id"] for row in runs] == [snapshot]
    assert json.loads(runs[0]["config"])["revision"] == first.revision


def test_nothing_private_leaves_and_names_are_hashed_alike(edition: Edition) -> None:
    files = edition.files
    whole = texts(files)
    for secret in (*lakes.SECRETS, TOKEN):
        assert secret not in whole, secret
    rows = tables(files)
    assert "log" not in rows["evaluations"].column_names
    assert "endpoint" not in rows["policies"].column_names
    host = rows["devices"].column("host")[0].as_py()
    assert re.fullmatch("anon-[0-9a-f]{16}", host)
    assert rows["runs"].column("host")[0].as_py() == host
    assert rows["standings"].column("author")[0] == rows["analyses"].column("author")[0]
    assert rows["evaluations"].column("message")[0].as_py().endswith("/judge.py")
    assert json.loads(rows["runs"].column("config")[0].as_py())["max_tokens"] == 7


def test_files_suit_the_viewer_and_the_card_describes_them(edition: Edition) -> None:
    files = edition.files
    head = yaml.safe_load(files["README.md"].decode().split("---\n")[1])
    assert head["license"] == "mit"
    described = {one["config_name"]: one for one in head["dataset_info"]}
    for config in head["configs"]:
        name = config["config_name"]
        data = files[f"data/{name}/train-00000.parquet"]
        read = pq.ParquetFile(io.BytesIO(data))
        assert config["data_files"] == [{"split": "train", "path": f"data/{name}/train-*.parquet"}]
        assert [one["name"] for one in described[name]["features"]] == read.schema_arrow.names
        assert described[name]["splits"][0]["num_examples"] == read.metadata.num_rows
        assert read.metadata.row_group(0).column(0).has_offset_index
        assert read.metadata.row_group(0).column(0).has_column_index
    with store.open(edition.lake, at="v1") as lake:
        rows = {n: lake.sql(f"SELECT count(*) AS n FROM {n}").one() for n in lake.catalog.tables}
        # Words such as "key" are no secrets there.
        [kept] = lake.sql("SELECT definition FROM catalogs").rows()
        assert kept["definition"] == lake.catalog.definition
    assert set(described) == {n for n, one in rows.items() if one != {"n": 0}} - {"ingest_log"} | {
        "tags"
    }
    assert "without a config: " in edition.done.card


@pytest.mark.slow
def test_the_card_says_what_the_lake_knows_of_sessions_and_of_other_shapes(
    edition: Edition, rich_lake: Path, tmp_path: Path
) -> None:
    assert "Intervals include the spread of sessions." not in edition.done.card
    assert "other input shapes" not in edition.done.card
    url = str(shutil.copytree(rich_lake, tmp_path / "lake"))
    with store.writer(url, author="tests") as writer, HubServer() as server:
        with writer.reader() as lake:
            best = lake.sql("SELECT * FROM best_kernels WHERE baseline = 'eager' LIMIT 1").one()
        assert best is not None
        spread = builders.session_spread({"name": "", "kind": "cpu"}, 0.01)
        spread |= {name: best[name] for name in ("device", "clock")}
        task, kernel = {"task_id": best["task_id"]}, {"kernel_id": best["kernel_id"]}
        shape = builders.workload(task, "ROWS=1", '{"ROWS": 1}')
        device = {"device_id": best["device_id"], "kind": "cuda"}
        rows = {
            "session_spreads": [spread, spread | {"spread_id": "other", "device": "Z9"}],
            "workloads": [shape],
            "evaluations": [builders.evaluation(kernel, task, shape, device, protocol="shape")],
        }
        writer.append(rows, "spreads and a shape")
        text = publish(url, REPO, V1, hub=Hub(server.url, TOKEN)).card
    device, clock = card.neutralize(best["device"]), card.neutralize(best["clock"])
    assert f"On {device}, 4 sessions of a kernel by the clock {clock} give" in text
    assert "On Z9," not in text
    assert "1 of the 1 best kernels that were tried at other input shapes are correct" in text


def test_a_hostile_text_stays_text_in_the_card(edition: Edition) -> None:
    hostile = edition.done.card
    assert edition.files["README.md"].decode() == hostile
    head, body = hostile.split("---\n")[1], hostile.split("---\n", 2)[2]
    assert yaml.safe_load(head)["license"] == "mit"
    assert head.count("\nlicense:") + head.startswith("license:") == 1
    for mark in ("<script", "<img", "onerror=", "](javascript", "Owned\n", "\n# Owned"):
        assert mark not in body
    assert "&#60;" in body
    assert not re.search(r"<[a-zA-Z/!]", body)


@pytest.mark.parametrize(
    "text",
    [lakes.HOSTILE, "www.evil.example", "https://evil.example", "- x", "a@b.example", "**b**"],
)
def test_nothing_inert_can_be_markup_or_a_link(text: str) -> None:
    made = card.neutralize(text)
    assert "\n" not in made
    bare = re.sub(r"&#\d+;", "", made)
    assert re.fullmatch(r"[A-Za-z0-9 .,-]*", bare)
    assert "www." not in made
    assert not made.startswith(("-", " "))


def test_the_edition_is_a_lake_that_opens_and_takes_nothing(
    edition: Edition, tmp_path: Path
) -> None:
    local = tmp_path / "moved" / "elsewhere"
    for path, data in edition.files.items():
        (local / path).parent.mkdir(parents=True, exist_ok=True)
        (local / path).write_bytes(data)
    question = "SELECT task_id, kernel_id, speedup, speedup_low FROM best_kernels ORDER BY ALL"
    with store.open(edition.lake, at="v1") as own:
        expected, identity = own.sql(question).rows(), (own.lake_id, own.snapshot)
        receipt = make_receipt(own, expected[0]["kernel_id"])
    with store.open(str(local), at="v1") as lake:
        assert (lake.lake_id, lake.snapshot) == identity
        assert lake.sql(question).rows() == expected
        assert make_receipt(lake, expected[0]["kernel_id"]) == receipt
        assert lake.sql("SELECT count(*) AS n FROM kernels").one() == {"n": 4}
    before = (local / edition_writer.CATALOG).read_bytes()
    with pytest.raises(LakeUnreachable, match="published edition"):
        store.writer(str(local), author="tests")
    for maintain in (integrity.check, maintenance.compact):
        with pytest.raises(LakeUnreachable, match="published edition") as refused:
            maintain(FolderLocation(local))
        assert "store pull" in str(refused.value.hint)
    assert not FolderLocation(Path(edition.lake)).is_edition
    assert (local / edition_writer.CATALOG).read_bytes() == before


@pytest.mark.slow
def test_more_rows_leave_older_files_as_they_were(
    rich_url: str, server: HubServer, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edition_writer, "BLOCK_ROWS", 2)
    monkeypatch.setattr(edition_writer, "GROUP_BYTES", 1)
    monkeypatch.setattr(edition_writer, "SHARD_BYTES", 1)
    publish(rich_url, REPO, Options(tag="v1", tables=("kernels",)), hub=hub)
    before = server.files(REPO)
    assert sum(path.startswith("data/kernels/") for path in before) == 2
    with store.writer(rich_url, author="tests") as writer:
        writer.append({"kernels": [builders.kernel("0", license="MIT")]}, "one more")
    done = publish(rich_url, REPO, Options(tag="v2", tables=("kernels",)), hub=hub)
    changed = {one.path for one in done.changes if one.what == "changed"}
    new = {one.path for one in done.changes if one.what == "new"}
    assert new == {"data/kernels/train-00002.parquet"}
    assert {
        "README.md",
        MANIFEST,
        edition_writer.CATALOG,
        "data/tags/train-00000.parquet",
    } <= changed
    assert not any(path.startswith("data/kernels/") for path in changed)
    after = server.files(REPO)
    assert all(after[path] == data for path, data in before.items() if path not in changed)
    assert server.files(REPO, "v1") == before
    with store.open(rich_url) as lake:
        arrived = lake.run("SELECT kernel_id FROM lake.main.kernels ORDER BY rowid").rows()
    assert tables(after)["kernels"].column("kernel_id").to_pylist() == [
        row["kernel_id"] for row in arrived
    ]


@pytest.mark.slow
def test_quarantined_kernels_are_marked_or_gone_without_a_trace(
    rich_url: str, server: HubServer, hub: Hub, edition: Edition, tmp_path: Path
) -> None:
    marked = tables(edition.files)["kernels"]
    assert sorted(marked.column("quarantined").to_pylist()) == [False, False, False, True]
    without = Options(tag="clean", quarantined="leave-out")
    done = publish(rich_url, "lab/clean", without, hub=hub)
    files = server.files("lab/clean")
    assert "cheats-with-a-cache" in texts(edition.files)
    assert "cheats-with-a-cache" not in texts(files)
    assert done.tables["kernels"] == 3
    assert any("left out" in notice for notice in done.notices)
    local = hub.api.snapshot_download("lab/clean", repo_type="dataset", local_dir=tmp_path / "here")
    with store.open(local) as lake:
        assert lake.sql("FROM suspects").rows() == []
        assert lake.sql("SELECT count(*) AS n FROM best_kernels").one() != {"n": 0}


@pytest.mark.slow
def test_some_tables_bring_what_they_refer_to(rich_url: str, server: HubServer, hub: Hub) -> None:
    done = publish(rich_url, REPO, Options(tag="v1", tables=("findings",)), hub=hub)
    assert any(notice.startswith("also published") for notice in done.notices)
    assert {"findings", "kernels", "evaluations", "devices", "tasks"} <= set(done.tables)
    assert "standings" not in done.tables
    with pytest.raises(UnknownName, match="kernls"):
        publish(rich_url, REPO, Options(tag="v2", tables=("kernls",)), hub=hub)


@pytest.mark.slow
def test_dry_runs_and_refusals_send_nothing(rich_url: str, server: HubServer, hub: Hub) -> None:
    server.faults.append(Fault("GET", "/api/datasets/", "status", 500, times=TRIES))
    unseen = publish(rich_url, REPO, FEW, hub=hub, dry_run=True)
    assert any("are not shown" in notice for notice in unseen.notices)
    planned = publish(rich_url, REPO, FEW, hub=hub, dry_run=True)
    assert server.repos == {}
    assert planned.revision is None
    assert {one.what for one in planned.changes} == {"new"}
    with store.open(rich_url) as lake:
        assert lake.sql("FROM tags").rows() == []
    publish(rich_url, REPO, FEW, hub=hub)
    writes = [one for one in server.requests if not one.startswith(("GET", "HEAD"))]
    again = publish(rich_url, REPO, FEW, hub=hub, dry_run=True)
    assert {one.what for one in again.changes} == {"same"}
    with pytest.raises(FlywheelError, match="already, with other content"):
        publish(rich_url, REPO, Options(tag="v1", tables=("devices",)), hub=hub)
    with pytest.raises(FlywheelError, match="is public"):
        publish(rich_url, REPO, Options(tag="v2", tables=("devices",)), private=True, hub=hub)
    assert writes == [one for one in server.requests if not one.startswith(("GET", "HEAD"))]


@pytest.mark.slow
def test_another_lake_is_refused_and_a_private_repository_hidden(
    server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    manifest = json.dumps({"lake_id": "of somebody else"}).encode()
    server.repos[REPO] = Repo(private=False)
    server.repos[REPO].add({MANIFEST: ("regular", manifest)}, "theirs")
    other = str(tmp_path / "other")
    with store.writer(other, author="tests") as writer:
        writer.append({"policies": [builders.policy()]}, "another lake")
    with pytest.raises(FlywheelError, match="another lake"):
        publish(other, REPO, FEW, hub=hub)
    publish(other, "lab/hidden", FEW, private=True, hub=hub)
    assert server.repos["lab/hidden"].private
    assert Hub(server.url).find("lab/hidden") is None


def test_a_token_in_a_kernel_stops_everything(rich_url: str, server: HubServer, hub: Hub) -> None:
    kernel = builders.kernel(code=f"class ModelNew: key = '{TOKEN}'\n", license="MIT")
    with store.writer(rich_url, author="tests") as writer:
        writer.append({"kernels": [kernel]}, "careless")
    with pytest.raises(RowsRejected, match="no token or key") as told:
        publish(rich_url, REPO, Options(tag="v1", tables=("kernels",)), hub=hub)
    assert TOKEN not in str(told.value)
    assert "--quarantined leave-out" in str(told.value)
    assert server.repos == {}
    finding = builders.finding(kernel)
    with store.writer(rich_url, author="tests") as writer:
        decided = {"findings": [finding], "standings": [builders.standing(finding, "confirmed")]}
        writer.append(decided, "quarantined")
    options = Options(tag="v1", tables=("kernels",), quarantined="leave-out")
    publish(rich_url, REPO, options, hub=hub)


def test_a_row_that_is_not_what_its_id_says_stops_everything(
    rich_url: str, server: HubServer, hub: Hub
) -> None:
    connection = attachment.connect()
    attachment.attach(connection, Location.of(rich_url), writable=True)
    connection.execute("CALL lake.set_option('require_commit_message', false)")
    connection.execute(
        f"INSERT INTO lake.tasks SELECT * REPLACE ('{'a' * 64}' AS task_id) FROM lake.tasks LIMIT 1"
    )
    connection.close()
    with pytest.raises(RowsRejected, match="task_id is the hash of code") as told:
        publish(rich_url, REPO, Options(tag="v1", tables=("tasks",)), hub=hub)
    assert told.value.examples == [f"task_id='{'a' * 64}'"]
    assert server.repos == {}


@pytest.mark.slow
def test_a_damaged_file_stops_everything_that_would_be_made_of_it(
    rich_url: str, server: HubServer, hub: Hub
) -> None:
    with store.writer(rich_url, author="tests") as writer:
        before = writer.flush()
        rows = [builders.kernel(f"many {number}", license="MIT") for number in range(60)]
        writer.append({"kernels": rows}, "a file")
        (file,) = (writer.location.data / "main" / "kernels").glob("*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(FlywheelError, match=f"kernels: main/kernels/{file.name}") as told:
        publish(rich_url, REPO, Options(tag="v1"), hub=hub)
    assert "Nothing was published" in str(told.value)
    assert server.repos == {}
    with pytest.raises(FlywheelError, match="Nothing was published"):
        publish(rich_url, REPO, Options(tag="v1", tables=("tasks",)), hub=hub)
    # A snapshot that it is no part of is published as ever.
    publish(rich_url, REPO, Options(tag="v1"), at=str(before), hub=hub)


@pytest.mark.slow
def test_a_dry_run_lists_files_first_and_sums_the_card_up(
    rich_url: str, server: HubServer, tmp_path: Path
) -> None:
    environment = os.environ | {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home")}
    words = ["store", "--lake", rich_url, "publish", REPO, "--tag", "v1"]

    def run(*more: str) -> str:
        done = commands.run([*words, *more], cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    lines = run("--tables", "policies", "--dry-run").splitlines()
    assert lines[0].startswith("files (+ new")
    assert lines[1].startswith("+ ")
    summary = next(number for number, line in enumerate(lines) if line.startswith("card: "))
    assert "--card prints it" in lines[summary]
    assert "  | Load it" in lines[summary:]
    assert lines[-1].startswith(
        f"would publish snapshot {store.open(rich_url).snapshot} as {REPO}@v1"
    )
    assert len(lines) < 60
    assert server.repos == {}


@pytest.mark.slow
def test_a_dry_run_prints_the_card(rich_url: str, server: HubServer, tmp_path: Path) -> None:
    environment = os.environ | {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home")}
    words = ["store", "--lake", rich_url, "publish", REPO, "--tag", "v1", "--tables", "policies"]
    done = commands.run([*words, "--dry-run", "--card"], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("---\n")
    assert "\n## Load it\n" in done.stdout
    assert server.repos == {}


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    "name", ["kernels", "a--b/c", "a/b/c", "../x/y", "lab/na me", "-/x", "a/b.", "a/b.git", ""]
)
def test_names_that_are_none_are_refused(name: str, rich_url: str, hub: Hub) -> None:
    with pytest.raises(FlywheelError, match="not a repository"):
        publish(rich_url, name, V1, hub=hub)


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("tag", ["v..1", "v1.lock", "v1.", "HEAD", "main", "v/1", "1"])
def test_tags_that_git_or_the_hub_would_refuse_are_refused(
    tag: str, rich_url: str, hub: Hub
) -> None:
    with pytest.raises(FlywheelError, match="cannot be a tag"):
        publish(rich_url, "lab/kernels", Options(tag=tag), hub=hub)


@pytest.mark.slow
def test_the_command_and_load_dataset_with_nothing_but_the_environment(
    rich_url: str, server: HubServer, tmp_path: Path
) -> None:
    folder = record_dataset(rich_url, tmp_path)
    environment = os.environ | {
        "HF_ENDPOINT": server.url, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_XET": "1", "FLYWHEEL_LAKE": rich_url,
    }  # fmt: skip
    words = ["store", "publish", REPO, "--tag", "v1", "--tables", "all", "--dataset", "short", "-v"]
    ended = commands.run(words, cwd=tmp_path, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert f"as {REPO}@v1" in ended.stdout.splitlines()[-1]
    loaded = subprocess.run(
        [sys.executable, "-c", _LOAD, REPO],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert loaded.returncode == 0, loaded.stderr
    counts = json.loads(loaded.stdout.splitlines()[-1])
    assert counts["kernels"] == 4
    assert counts["short"] == counts["streamed"] == 2
    assert counts["row"]["prompt"] == pq.read_table(folder).column("prompt")[0].as_py()
    assert counts["row"]["licenses"] == ["MIT"]
    assert counts["row"]["quarantined"] is False
    for text in (ended.stdout, ended.stderr, loaded.stdout, loaded.stderr):
        assert TOKEN not in text
    for file in Path(rich_url).rglob("*"):
        assert file.is_dir() or TOKEN.encode() not in file.read_bytes()
    assert TOKEN not in texts(server.files(REPO))


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("order", ["tag first", "run first"])
def test_a_dataset_brings_the_rows_that_record_it(
    rich_url: str, server: HubServer, hub: Hub, tmp_path: Path, order: str
) -> None:
    record = {"runs": 1, "datasets": 1, "dataset_rows": 2}

    def tag() -> None:
        with store.writer(rich_url, author="tests") as writer:
            history.add_tag(writer, "v1", None, None)

    def make() -> None:
        record_dataset(rich_url, tmp_path, "v1" if order == "tag first" else None)

    for step in (tag, make) if order == "tag first" else (make, tag):
        step()
    with store.open(rich_url, "v1") as lake:
        tagged = {
            name: lake.run(f"SELECT count(*) AS n FROM {name}").rows()[0]["n"] for name in record
        }
    publish(rich_url, REPO, Options(tag="v1", datasets=("short@v1",)), hub=hub)
    files = server.files(REPO)
    manifest = json.loads(files[MANIFEST])
    rows = tables(files)
    added = record if order == "tag first" else {}
    assert manifest.get("recorded_later", {}) == added
    assert {name: rows[name].num_rows for name in record} == {
        name: tagged[name] + added.get(name, 0) for name in record
    }
    [made] = [row for row in rows["datasets"].to_pylist() if row["name"] == "short"]
    assert made["run_id"] in rows["runs"].column("run_id").to_pylist()
    card_text = files["README.md"].decode()
    assert ("rows record them and were added" in card_text) == (order == "tag first")
    assert "| `short` | `data/short` |" in card_text
    mine = str(tmp_path / "mine")
    pull(mine, f"{REPO}@v1", hub=hub)
    with store.open(mine) as lake:
        held = lake.sql(
            "SELECT name, origin FROM datasets SEMI JOIN dataset_rows USING (dataset_id)"
        )
        assert held.rows() == [{"name": "short", "origin": REPO}]
    publish(rich_url, REPO, Options(tag="v1", datasets=("short@v1",)), hub=hub)


def test_help_explains_both_commands() -> None:
    for command in (store_cli.publish, store_cli.pull):
        assert "Examples:" in str(command.__doc__)


_LOAD = """
import json, sys
from datasets import get_dataset_config_names, load_dataset
repo = sys.argv[1]
counts = {
    name: load_dataset(repo, name, split="train", revision="v1").num_rows
    for name in ("kernels", "timings", "short")
}
assert {"short", "kernels", "runs"} <= set(get_dataset_config_names(repo, revision="v1"))
stream = list(load_dataset(repo, "short", split="train", revision="v1", streaming=True))
print(json.dumps(counts | {"streamed": len(stream), "row": stream[0]}))
"""


def _lake_id(url: str) -> str:
    with store.open(url) as lake:
        return lake.lake_id


def record_dataset(url: str, tmp_path: Path, at: str | None = None) -> Path:
    """Write the folder of a dataset as pipelines do, record it, and return its Parquet file."""
    with store.open(url, at) as lake:
        tasks = lake.sql("SELECT task_id FROM tasks ORDER BY task_id").rows()
        kernel = lake.sql("SELECT kernel_id FROM kernels WHERE kernel_id NOT IN "
                          "(SELECT kernel_id FROM findings) ORDER BY 1").rows()[0]  # fmt: skip
        lineage: dict[str, Any] = {"lake_id": lake.lake_id, "snapshot_id": lake.snapshot}
    run = builders.run("short", "pipeline")
    made = builders.dataset(run, "short", rows=2, path=str(tmp_path / "short"), **lineage)
    rows = [
        {"prompt": [{"role": "user", "content": f"Make it faster, {n}."}],
         "completion": [{"role": "assistant", "content": "faster"}],
         "task_id": task["task_id"], "prompt_id": f"{n}" * 64}
        for n, task in enumerate(tasks)
    ]  # fmt: skip
    file = tmp_path / "short" / "data" / "default" / "train-00000-of-00001.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), file)
    recipe = json.dumps({"dataset_id": made["dataset_id"]})
    (tmp_path / "short" / "recipe.json").write_text(recipe)
    with store.writer(url, author="tests") as writer:
        of_rows = [
            builders.dataset_row(made, task, [kernel], n, prompt_id=row["prompt_id"])
            for n, (task, row) in enumerate(zip(tasks, rows, strict=True))
        ]
        writer.append({"runs": [run], "datasets": [made], "dataset_rows": of_rows}, "a dataset")
    return file


@pytest.mark.slow
def test_a_dataset_that_is_not_what_was_recorded_is_refused(
    rich_url: str, server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    file = record_dataset(rich_url, tmp_path)
    rows = pq.read_table(file)
    pq.write_table(rows.slice(0, 1), file)
    with pytest.raises(FlywheelError, match="is not the dataset that the lake recorded"):
        publish(rich_url, REPO, Options(tag="v1", datasets=("short",)), hub=hub)
    with pytest.raises(UnknownName, match="shrt"):
        publish(rich_url, REPO, Options(tag="v1", datasets=("shrt",)), hub=hub)
    assert server.repos == {}
