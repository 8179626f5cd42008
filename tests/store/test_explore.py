"""The pages of `store explore`: content, exports, inert text, refusals, decisions."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import builders as b
import pytest
from explorer_lakes import HOSTILE_NAME, Page, crawl, open_client, parse_page, write_lake
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

import store
from store.bounds import QueryLimits
from store.commandline.escape import encode_json
from store.commandline.listening import AccessToken
from store.errors import FlywheelError, SnapshotNotFound
from store.explore.page.model import REPORT, SQL, View, order_by
from store.explore.page.texts import show_steps
from store.explore.server import app
from store.explore.server.app import build_app, find_pages
from store.explore.server.readers import Readers
from store.guard.query_process import QueryProcess
from store.lake import view_cache
from store.lake.location import Location
from store.receipts.check import verify

# Those of the report have limits of their own.
QUESTIONS = [file for file in sorted(SQL.glob("*/*.sql")) if file.parent != REPORT]
TOKEN = "correct horse battery"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with rows for every page."""
    return write_lake(tmp_path_factory.mktemp("plain") / "lake")


@pytest.fixture(scope="module")
def client(lake: Path) -> Iterator[Any]:
    """Yield a client of that lake's pages."""
    with open_client(lake) as opened:
        yield opened


@pytest.fixture(scope="module")
def hostile_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with rows for every page, in which every free text is hostile."""
    return write_lake(tmp_path_factory.mktemp("hostile") / "lake", hostile=True)


@pytest.fixture(scope="module")
def hostile_client(hostile_lake: Path) -> Iterator[Any]:
    """Yield a client of that lake's pages."""
    with open_client(hostile_lake) as opened:
        yield opened


@pytest.fixture(scope="module", params=["tabs", pytest.param("filters", marks=pytest.mark.slow)])
def answers(hostile_client: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the answers of every kind of address that its pages link to."""
    return crawl(hostile_client, filters=request.param == "filters")


def pages_of(answers: dict[str, Any]) -> dict[str, str]:
    html = {a: r for a, r in answers.items() if r.headers["content-type"].startswith("text/html")}
    return {address: answer.text for address, answer in html.items()}


@pytest.mark.slow
def test_a_kernel_page_offers_the_receipt_of_its_numbers(lake: Path, client: Any) -> None:
    with store.open(str(lake)) as opened:
        [row] = opened.sql("SELECT kernel_id, device FROM pooled_speedups LIMIT 1").rows()
    page = parse_page(client.get(f"/kernel/{row['kernel_id']}").text)
    [link] = [link for link in page.links() if "receipt" in link]
    answer = client.get(f"{link}?device={row['device']}")
    assert "attachment" in answer.headers["content-disposition"]
    assert verify(answer.content).receipt["device"] == row["device"]
    assert client.get("/kernel/0000/receipt.json").status_code == 404


def test_every_link_leads_to_a_page_without_a_failure(answers: dict[str, Any]) -> None:
    assert {address: r.status_code for address, r in answers.items() if r.status_code != 200} == {}
    for address, html in pages_of(answers).items():
        assert 'role="alert"' not in html, address
        assert len(html) < 300_000
    reached = {address.partition("?")[0] for address in answers}
    for member in find_pages():
        pattern = re.sub(r"\{\w+(:path)?\}", "[^/.]+", member.PATH)
        linked = any(re.fullmatch(pattern, path) for path in reached)
        assert linked or member.PATH in ("/search",), member.PATH


def test_pages_are_well_formed_and_their_parts_are_named(answers: dict[str, Any]) -> None:
    for address, html in pages_of(answers).items():
        page = parse_page(html)
        assert not page.open, address
        ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
        assert len(ids) == len(set(ids)), address
        assert [tag for tag, _ in page.tags].count("h1") == 1
        for _, attributes in page.tags:
            assert "style" not in attributes
            assert not [name for name in attributes if name.startswith("on")]
            if attributes.get("aria-labelledby"):
                assert attributes["aria-labelledby"] in ids


@pytest.mark.slow
def test_every_page_of_a_starter_lake_answers(tmp_path: Path) -> None:
    from store.importers import starter
    from store.importers.reading.pieces import run_import

    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        run_import(writer, starter, None, starter.Config())
    with open_client(tmp_path / "lake") as opened:
        answers = crawl(opened)
    assert {r.status_code for r in answers.values()} == {200}
    assert not [a for a, html in pages_of(answers).items() if 'role="alert"' in html]
    assert "diag_matmul" in answers["/tasks"].text


def test_pages_of_a_lake_without_rows_say_what_adds_some(empty_lake: Path) -> None:
    with open_client(empty_lake) as opened:
        for member in find_pages():
            if "{" not in member.PATH:
                answer = opened.get(member.PATH)
                assert answer.status_code == 200
                assert 'role="alert"' not in answer.text
        assert "evaluators run" in opened.get("/leaderboards").text
        assert "store import starter" in opened.get("/tasks").text


def list_exports(answers: dict[str, Any]) -> list[str]:
    """Return the address of the SQL of each panel."""
    found: set[str] = set()
    for page in map(Page, pages_of(answers).values()):
        names = {attributes.get("id") for _, attributes in page.tags}
        for link in page.links():
            panel = re.search(r"/(\w+)[.]sql", link)
            if panel and panel[1] in names and "at=" not in link:
                found.add(link)
    return sorted(found)


@pytest.mark.slow
def test_exports_are_what_store_query_gives(
    hostile_lake: Path, hostile_client: Any, answers: Any
) -> None:
    addresses = list_exports(answers)
    assert len(addresses) > 50
    check_exports(hostile_lake, hostile_client, addresses[::12])


@pytest.mark.slow
def test_all_exports_are_what_store_query_gives(lake: Path, client: Any) -> None:
    check_exports(lake, client, list_exports(crawl(client)))


def check_exports(lake: Path, client: Any, addresses: list[str]) -> None:
    with QueryProcess(str(lake), None) as process:
        for address in addresses:
            sql = client.get(address).text
            rows = process.ask(sql).rows
            shown = client.get(address.replace(".sql", ".json")).json()
            [view] = shown["views"].values()
            assert encode_json(view["rows"]) == encode_json(rows.to_pylist()), address
            assert shown["snapshot"] == process.snapshot
            table = client.get(address.replace(".sql", ".csv")).text
            assert table == app.write_csv(rows), address


@pytest.mark.slow
def test_sorting_and_paging_are_in_the_address(client: Any) -> None:
    whole = client.get("/tasks.json?sort.list=-task").json()["views"]["list"]["rows"]
    assert [row["task"] for row in whole] == ["level2/2", "level1/1"]
    page = Page(client.get("/tasks?sort.list=-task").text)
    assert page.text.index("level2/2") < page.text.index("level1/1")
    sorts = [href for href in page.links() if "sort.list=task" in href]
    assert sorts, "the heading offers the other direction"
    assert client.get("/tasks?page.list=2").status_code == 200
    for bad in ('x" FROM kernels --', "nothing", "task; DROP"):
        answer = client.get("/tasks.json", params={"sort.list": bad})
        assert answer.status_code == 400


def test_speedups_are_filtered_by_clock_and_precision(client: Any) -> None:
    rows = client.get("/leaderboards/best.json?clock=gpu&precision=torch_default").json()
    best = rows["views"]["best"]["rows"]
    kernel = f"/kernel/{best[0]['kernel_id']}"
    task = f"/task/{best[0]['task_id']}"
    for path, panel in (
        ("/leaderboards", "best"), ("/leaderboards", "distribution"), (task, "ranking"),
        (kernel, "sessions"), (kernel, "speedups"),
    ):  # fmt: skip
        address = f"{path}/{panel}.json?tab=timings&precision=torch_default"
        if path == task:
            address = address.replace("tab=timings&", "")
        assert client.get(f"{address}&clock=gpu").json()["views"][panel]["rows"]
        by_latency = client.get(f"{address}&clock=latency").json()["views"][panel]["rows"]
        assert {row["clock"] for row in by_latency} <= {"latency"}
        # Rankings have one clock; the timings of a kernel have all.
        assert bool(by_latency) == (path in (task, kernel))
    ranking = "/leaderboards/ranking.json?precision="
    for clock, p50 in (("gpu", 3.14), ("latency", 1.3)):
        address = f"{ranking}torch_default&clock={clock}&level=all&baseline=eager&policy=any"
        [row] = client.get(address).json()["views"]["ranking"]["rows"]
        assert (row["clock"], row["ranks"], round(row["p50"], 2)) == (clock, clock == "gpu", p50)
    assert client.get(f"{ranking}fp64").status_code == 404


def test_a_profile_gives_the_share_of_the_roofline(client: Any) -> None:
    kernel = b.kernel("k0")["kernel_id"]
    shown = client.get(f"/kernel/{kernel}/roofline.json?tab=timings").json()
    [row] = shown["views"]["roofline"]["rows"]
    assert (row["share_of_bandwidth"], row["share_of_compute_peak"]) == (0.5, 0.06)
    assert (row["moved_mb"], row["gflop"], row["peak_gflop_per_s"]) == (134.2, 4.18, 66910.0)
    others = client.get(f"/kernel/{b.kernel('k1')['kernel_id']}/roofline.json?tab=timings").json()
    assert others["views"]["roofline"]["rows"] == []


UNKNOWN = (
    "/kernel/zz", "/kernel/00", "/task/none", "/run/none", "/attempt/x", "/prompt/x", "/dataset/x",
    "/nothing", "/?at=no", "/static/../app.py", "/tasks.exe", "/tasks/none.json",
)  # fmt: skip


@pytest.mark.parametrize("address", UNKNOWN)
def test_unknown_addresses_are_not_found(client: Any, address: str) -> None:
    assert client.get(address).status_code == 404


def test_a_filter_refuses_a_value_that_is_no_option(client: Any) -> None:
    answer = client.get("/leaderboards?device=H10")
    assert answer.status_code == 404
    assert "H100" in answer.text


@pytest.mark.slow
def test_an_older_snapshot_shows_what_there_was(client: Any) -> None:
    now = client.get("/suspects.json?standing=confirmed").json()
    [kernel] = now["views"]["groups"]["rows"]
    before = client.get(f"/suspects.json?standing=confirmed&at={now['snapshot'] - 1}").json()
    assert before["snapshot"] == now["snapshot"] - 1
    assert before["views"]["groups"]["rows"] == []
    page = Page(client.get(f"/kernel/{kernel['kernel_id']}?at={now['snapshot'] - 1}").text)
    inside = [link for link in page.links() if not link.startswith("/static")]
    assert all(f"at={now['snapshot'] - 1}" in link for link in inside)


@pytest.mark.slow
def test_a_diff_shows_the_change_of_code_and_time(client: Any) -> None:
    rows = client.get("/task/" + b.task("square")["task_id"] + ".json").json()
    ranked = rows["views"]["ranking"]["rows"]
    html = client.get(f"/kernel/{ranked[0]['kernel_id']}?tab=changes").text
    assert "1 line added" in html
    assert "1 removed" in html
    change = client.get(f"/kernel/{ranked[0]['kernel_id']}/change.json?tab=changes").json()
    rows = change["views"]["change"]["rows"]
    [at_gpu] = [row for row in rows if (row["baseline"], row["clock"]) == ("eager", "gpu")]
    assert at_gpu["ratio"] == pytest.approx(at_gpu["speedup"] / at_gpu["speedup_before"])


def test_a_dataset_shows_the_rows_of_its_files(client: Any, lake: Path) -> None:
    [data] = client.get("/datasets.json").json()["views"]["list"]["rows"]
    address = f"/dataset/{data['dataset_id']}"
    first = Page(client.get(address).text)
    assert "Make it fast." in first.text
    assert "trained answers" in first.text
    assert "exemplar, shown with 2.5" in first.text
    assert "7 tokens" in first.text
    assert "9 tokens" not in first.text
    assert f"{address}?row=2" in first.links()
    last = Page(client.get(f"{address}?row=2").text)
    assert "9 tokens" in last.text
    assert "8 tokens" not in last.text
    assert "Three rows." in client.get(f"{address}?tab=card").text
    recipe = lake.parent / "dataset" / "recipe.json"
    kept = recipe.read_text()
    try:
        recipe.write_text('{"dataset_id": "another"}')
        assert "does not have the files of this dataset" in client.get(address).text
    finally:
        recipe.write_text(kept)


def test_a_session_is_shown_step_by_step(client: Any) -> None:
    rows = client.get("/sessions.json?q=trained").json()["views"]["list"]["rows"]
    [main] = [row for row in rows if row["steps"]]
    assert (main["steps"], main["calls"], main["failed_calls"]) == (2, 2, 1)
    html = client.get(f"/session/{main['agent_session_id']}").text
    assert "Reasoning" in html
    assert "/kernel/" in html
    steps = client.get(f"/session/{main['agent_session_id']}/steps.json").json()
    calls = steps["views"]["steps"]["rows"][1]["calls"]
    assert [call["is_error"] for call in calls] == [False, True]
    outcome = client.get(f"/session/{main['agent_session_id']}?tab=outcome").text
    assert "Subagents" in outcome
    assert client.get("/session/none").status_code == 404


@pytest.mark.slow
def test_tokens_of_a_run_are_colored_in_the_text_of_its_answers(client: Any) -> None:
    run = f"/run/{b.run('contrastive', 'training')['run_id']}"
    html = client.get(run).text
    told = "At step 9, 1 answer has 9 tokens on average and a surprisal of 2.39 nats per token"
    assert told in parse_page(html).text
    assert "least likely token is \u201cfas\u201d, with log p \u22129.00" in html
    title = "id 42, log-probability -1.5, gap 0.09, advantage 0.9"
    assert f'<span class="minus2" title="{title}">ke </span>' in html
    assert '<span class="given" title="id 47, not in the loss">\u27e847\u27e9</span>' in html
    by_advantage = client.get(f"{run}?color=advantage").text
    assert f'<span class="plus2" title="{title}">ke </span>' in by_advantage
    assert f'<span class="minus2" title="{title}">ke </span>' in client.get(f"{run}?color=gap").text
    assert client.get(f"{run}?color=red").status_code == 404
    assert "It is not stored where its tokens are in the text" in client.get(f"{run}?step=4").text
    for missing in ("5", "x", "9" * 30):
        assert "no tokens at this step" in client.get(f"{run}?step={missing}").text
    rows = client.get(f"{run}/rollouts.json").json()["views"]["rollouts"]["rows"]
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_long_texts_of_a_session_are_cut_to_the_size_of_a_page() -> None:
    row = {"reasoning": None, "content": "x" * 9000, "calls": None}
    shown = [step["content"] for step in show_steps([row] * 40)]
    assert all(part is not None and part.left_out >= 5000 for part in shown)
    assert sum(len(part.text) for part in shown if part) < 150_000


def test_stored_text_stays_inert(answers: dict[str, Any]) -> None:
    pages = pages_of(answers)
    assert any("<script>alert(1)" in parse_page(html).text for html in pages.values())
    for address, html in pages.items():
        page = parse_page(html)
        assert not page.open, address
        scripts = [attributes for tag, attributes in page.tags if tag == "script"]
        assert [str(s["src"]).partition("?")[0] for s in scripts] == ["/static/explore.js"]
        images = [str(a["src"]) for tag, a in page.tags if tag == "img"]
        assert all(source.startswith("/static/") for source in images)
        assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on")]
        # An option of a filter keeps its value, which no reader sees.
        seen = re.sub(r' value="[^"]*"', "", html)
        strange = [c for c in seen if not c.isprintable() and c not in "\n\t\N{NO-BREAK SPACE}"]
        assert not strange, (address, strange[:3])
        assert len(html) < 300_000
    assert {answer.status_code for answer in answers.values()} == {200}


def test_answers_state_what_a_browser_may_load(client: Any) -> None:
    for address in ("/", "/sql", "/nothing", "/tasks.json", "/static/explore.js", "/events/x"):
        headers = client.get(address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.1@evil",
                                  "[::1", "10.0.0.1"])  # fmt: skip
def test_other_names_of_this_machine_are_refused(client: Any, host: str) -> None:
    answer = client.get("/tasks", headers={"host": host})
    assert answer.status_code == 421
    assert "level1" not in answer.text


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1:1", "[::1]:8765"])
def test_names_of_this_machine_are_served(client: Any, host: str) -> None:
    assert client.get("/tasks", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("sql", [
    "DROP TABLE kernels", "COPY kernels TO 'x.csv'", "FROM read_text('/etc/passwd')",
    "ATTACH 'sqlite:lake/catalog.sqlite'", "SELECT 1; SELECT 2", "FROM '/etc/passwd'",
    "SELECT getenv('HOME')", "SET memory_limit = '1TB'", "FROM nothing",
])  # fmt: skip
def test_the_console_refuses_what_is_no_query_of_the_lake(client: Any, sql: str) -> None:
    answer = client.get("/sql", params={"sql": sql})
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert "root:" not in answer.text
    assert client.get("/sql.json", params={"sql": sql}).status_code in (400, 404)


def test_the_console_answers_with_a_table_a_chart_and_completions(client: Any) -> None:
    answer = client.get(
        "/sql", params={"sql": "SELECT kernel_ms, speedup, kernel_id FROM speedups"}
    )
    assert "svg" in [tag for tag, _ in Page(answer.text).tags]
    assert "/kernel/" in answer.text
    rows = client.get("/sql.json", params={"sql": "SELECT count(*) AS n FROM kernels"}).json()
    assert rows["rows"] == [{"n": 11}]
    names = client.get("/sql.names").json()
    assert "kernel_id" in names["kernels"]
    assert "speedups" in names


def decide(client: Any, **fields: str) -> Any:
    given = {"decision": "dismissed", "why": "honest", "token": TOKEN} | fields
    return client.post(
        "/suspects/decide", data=given, headers={"origin": "http://localhost"},
        follow_redirects=False,
    )  # fmt: skip


def test_decisions_need_the_token_a_reason_and_our_own_page(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(lake, tmp_path / "lake"))
    with open_client(folder) as opened:
        [row] = opened.get("/suspects/findings.json").json()["views"]["findings"]["rows"]
        refused = decide(opened, finding=row["finding_id"])
        assert refused.status_code == 400
        assert app.TOKEN in refused.text
    monkeypatch.setenv(app.TOKEN, TOKEN)
    with open_client(folder) as opened:
        finding = row["finding_id"]
        assert 'type="password"' in opened.get("/suspects").text
        assert decide(opened, finding=finding, token="guess").status_code == 400
        assert decide(opened, finding=finding, why=" ").status_code == 400
        assert decide(opened, finding=finding, decision="deleted").status_code == 400
        for origin in ({"origin": "http://evil.example"}, {}):
            foreign = opened.post(
                "/suspects/decide", data={"finding": finding, "token": TOKEN}, headers=origin
            )
            assert foreign.status_code == 400
        assert decide(opened, finding="none").status_code == 400
        with store.open(str(folder)) as opened_lake:
            assert opened_lake.sql("SELECT count(*) AS n FROM standings").rows() == [{"n": 1}]
        done = decide(opened, finding=finding)
        assert done.status_code == 303
        assert "httponly" in done.headers["set-cookie"].lower()
        shown = opened.get("/suspects/findings.json?standing=dismissed").json()
        assert [one["why"] for one in shown["views"]["findings"]["rows"]] == ["honest"]
        # The cookie stands for the token from now on.
        assert decide(opened, finding=finding, decision="confirmed", token="").status_code == 303


def test_a_short_token_is_refused() -> None:
    with pytest.raises(FlywheelError, match="too short"):
        AccessToken("short", app.TOKEN)


def test_a_statement_ends_with_its_request(lake: Path) -> None:
    async def run() -> int:
        limits = QueryLimits(timeout=600)
        async with Readers(Location.of(str(lake)), None, limits) as readers:
            endless = "SELECT count(*) FROM range(100000000000) AS a, range(1000) AS b"
            asked = [asyncio.create_task(readers.ask(readers.newest, endless)) for _ in range(9)]
            await asyncio.sleep(0.5)
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            table = await readers.ask(readers.newest, "SELECT count(*) AS n FROM kernels")
            return int(table.to_pylist()[0]["n"])

    assert asyncio.run(asyncio.wait_for(run(), 120)) == 11


@pytest.mark.slow
def test_pages_follow_the_lake_and_say_so_to_open_pages(tmp_path: Path) -> None:
    folder = write_lake(tmp_path / "lake")

    async def run() -> list[str]:
        async with Readers(Location.of(str(folder)), None, QueryLimits()) as readers:
            answer: Any = await app.send_events(readers, None)  # type: ignore[arg-type]
            events = aiter(answer.body_iterator)
            heard = [await anext(events)]
            with store.writer(str(folder), author="tests") as writer:
                writer.append({"policies": [b.policy("new")]}, "a policy")
            waiting = asyncio.ensure_future(anext(events))
            await readers.refresh()
            return [*heard, await asyncio.wait_for(waiting, 60)]

    first, second = [int(event.split()[-1]) for event in asyncio.run(run())]
    assert second > first


@pytest.mark.slow
def test_pages_say_that_and_why_they_are_not_refreshed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("store.explore.server.readers.REFRESH_S", 3600.0)
    catalog = write_lake(tmp_path / "lake") / "catalog.sqlite"
    location = Location.of(str(catalog.parent))
    readers = Readers(location, None, QueryLimits())
    pages = build_app(readers, app.Decider(None, None))
    with TestClient(pages, base_url="http://localhost") as client:
        assert client.portal is not None
        before = client.get("/").text
        whole = catalog.read_bytes()
        catalog.write_bytes(b"<script>" * (len(whole) // 8))
        for _ in range(2):
            client.portal.call(readers.try_refresh)
        during = client.get("/sql").text
        catalog.write_bytes(whole)
        client.portal.call(readers.try_refresh)
        after = client.get("/").text
    assert "Not refreshed since" not in before + after
    (note,) = re.findall('<p class="error" role="status">Not refreshed since .*</p>', during)
    assert " UTC: Failed to query most recent snapshot" in note
    assert "&#34;SELECT " in note
    (logged,) = (one for one in caplog.records if "not refreshed" in one.message)
    assert "Failed to query most recent snapshot" in logged.message
    assert not logged.exc_info


def test_a_pinned_server_stays_at_its_snapshot(lake: Path) -> None:
    async def run() -> tuple[int, int]:
        async with Readers(Location.of(str(lake)), "1", QueryLimits()) as readers:
            await readers.refresh()
            with pytest.raises(SnapshotNotFound):
                await readers.resolve("nothing")
            return readers.newest, await readers.resolve(None)

    assert asyncio.run(run()) == (1, 1)


@pytest.mark.slow
def test_cached_views_are_written_before_a_page_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_cache, "LARGE_ROWS", 1)
    folder = write_lake(tmp_path / "lake")

    async def run() -> set[str]:
        async with Readers(Location.of(str(folder)), None, QueryLimits()):
            return {file.name.partition("-")[0] for file in folder.glob("derived/*.parquet")}

    assert asyncio.run(run()) == set(view_cache.SOURCES)


@pytest.mark.parametrize("file", QUESTIONS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_question_has_a_title_and_ends_in_its_order(file: Path) -> None:
    text = file.read_text("utf-8")
    assert text.startswith("-- ")
    last = text[text.rindex("\nORDER BY ") :]
    assert not re.search(r"\bLIMIT\b|;|\n\)", last)
    assert all(len(line) <= 100 for line in text.splitlines())


@given(st.dictionaries(st.sampled_from(["at", "tab", "page.list", "sort.list"]), st.text()))
def test_any_query_of_an_address_is_a_view_or_refused(query: dict[str, str]) -> None:
    from store.explore.page.model import Panel

    try:
        view = View(cast("Readers", None), 1, "/tasks", {}, query)
    except FlywheelError:
        assert any("\0" in value for value in query.values())
        return
    assert 1 <= view.get_page(Panel(name="list")) <= 10_000
    assert view.choose_tab("a", "b") in ("a", "b")
    assert "\n" not in view.change(tab="x")


@given(st.text())
def test_any_sort_is_a_column_or_refused(sort: str) -> None:
    try:
        sql = order_by("SELECT 1 AS a\nORDER BY a", sort)
    except FlywheelError:
        return
    assert re.fullmatch(r'SELECT 1 AS a\nORDER BY "[A-Za-z0-9_]+" (ASC|DESC) NULLS LAST, a', sql)


@pytest.mark.slow
def test_a_hostile_name_is_searched_as_text(client: Any) -> None:
    started = time.monotonic()
    for text in (HOSTILE_NAME, "'; DROP TABLE kernels; --", "%", "$q", "\\"):
        answer = client.get("/search", params={"q": text})
        assert answer.status_code == 200
        assert 'role="alert"' not in answer.text, (text, time.monotonic() - started)
