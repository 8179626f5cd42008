"""What may be given away: nothing without a license that allows it, and every row says which."""

from __future__ import annotations

import builders
import pytest
import yaml
from hub.server import HubServer
from hub.test_publish import tables

import store
from store.errors import RowsRejected
from store.hub import licenses
from store.hub.client import Hub
from store.hub.edition_writer import Options
from store.hub.publish import publish

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
REPO = "lab/kernels"


@pytest.mark.parametrize(
    ("license", "allowed"),
    [
        ("MIT", True), ("apache-2.0", True), ("CC-BY-4.0", True), ("MIT AND Apache-2.0", True),
        ("(MIT OR GPL-3.0-only)", True), ("Proprietary", False), ("MIT AND Proprietary", False),
        ("Llama 3.1 Community License", False), ("", False), ("none", False), ("MIT\n", True),
    ],
)  # fmt: skip
def test_which_licenses_allow_redistribution(license: str, allowed: bool) -> None:
    assert licenses.is_redistributable(license) is allowed


@pytest.mark.slow
def test_a_text_without_a_license_stops_everything_and_is_named(
    rich_url: str, server: HubServer, hub: Hub
) -> None:
    bare = builders.kernel("bare", source="a forum")
    closed = builders.kernel("closed", license="Proprietary", source="a vendor")
    with store.writer(rich_url, author="tests") as writer:
        writer.append({"kernels": [bare, closed]}, "of unclear origin")
    with pytest.raises(RowsRejected) as told:
        publish(rich_url, REPO, Options(tag="v1", tables=("kernels",)), hub=hub)
    assert told.value.count == 2
    assert told.value.exit_code == 3
    for part in (bare["kernel_id"], "a forum", closed["kernel_id"], "Proprietary"):
        assert part in str(told.value)
    assert server.repos == {}
    apart = Options(tag="v1", tables=("kernels", "generations"), unlicensed="leave-out")
    done = publish(rich_url, REPO, apart, hub=hub)
    assert done.tables["kernels"] == 4
    published = tables(server.files(REPO))["kernels"].column("kernel_id").to_pylist()
    assert bare["kernel_id"] not in published
    assert "in quarantine at this snapshot (column `quarantined` of `kernels`)" in done.card


@pytest.mark.slow
def test_several_licenses_are_named_and_stand_in_every_row(
    rich_url: str, server: HubServer, hub: Hub
) -> None:
    kernels = [builders.kernel("ours"), builders.kernel("theirs", license="Apache-2.0")]
    run = builders.run("rollouts", "rollout")
    policy = builders.policy("own")
    task = builders.task("square")
    attempt = builders.generation(policy, task, kernels[0], run_id=run["run_id"])
    with store.writer(rich_url, author="tests") as writer:
        rows = {"kernels": kernels, "policies": [policy], "runs": [run]}
        writer.append(rows | {"generations": [attempt]}, "a rollout of ours")
    options = Options(tag="v1", tables=("kernels", "generations"), license="CC-BY-4.0")
    done = publish(rich_url, REPO, options, hub=hub)
    head = yaml.safe_load(done.card.split("---\n")[1])
    assert (head["license"], head["license_name"]) == ("other", "several-see-below")
    for license in ("MIT", "Apache-2.0", "CC-BY-4.0"):
        assert f"| kernels | {license} |" in done.card
    published = tables(server.files(REPO))["kernels"]
    stated = dict(
        zip(
            published.column("kernel_id").to_pylist(),
            published.column("license").to_pylist(),
            strict=True,
        )
    )
    assert stated[kernels[0]["kernel_id"]] == "CC-BY-4.0"
    assert None not in stated.values()


@pytest.mark.slow
def test_what_an_import_brought_cannot_be_licensed_by_the_publisher(
    rich_url: str, server: HubServer, hub: Hub
) -> None:
    bare = builders.kernel("bare")
    run = builders.run("kernels", "import")
    attempt = builders.generation(
        builders.policy("one") | {"policy_id": "p"}, builders.task("square"), bare,
        run_id=run["run_id"],
    )  # fmt: skip
    policy = builders.policy("someone") | {"policy_id": "p"}
    with store.writer(rich_url, author="tests") as writer:
        rows = {"kernels": [bare], "policies": [policy], "runs": [run], "generations": [attempt]}
        writer.append(rows, "an import")
    options = Options(tag="v1", tables=("kernels",), license="MIT")
    with pytest.raises(RowsRejected, match="no license"):
        publish(rich_url, REPO, options, hub=hub)
    assert server.repos == {}
