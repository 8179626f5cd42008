"""`store publish`: upload an edition to the Hub in one commit with one tag, or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import store
from store import faults
from store.commandline.escape import quote_name
from store.errors import FlywheelError
from store.hub import card, edition_writer
from store.hub.client import REPO, Hub, RepositoryState, compute_identity
from store.hub.edition_writer import MANIFEST, Edition, Options
from store.lake.host import open_scratch
from store.lake.location import Location
from store.lake.reader import Lake
from store.upkeep import history

TAG = re.compile(
    r"(?!(?:main|HEAD)$)(?!.*(?:\.\.|\.lock$))[A-Za-z](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?"
)
"""A name that git takes, and that is no name of a branch."""
Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One file of an edition, compared with the repository."""

    path: str
    what: str
    """new, changed, same, or gone."""
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What publishing did, or would do."""

    repo: str
    tag: str
    snapshot: int
    revision: str | None
    """Commit with the edition; None in a dry run that found none."""
    changes: list[Change]
    card: str
    notices: list[str]
    tables: dict[str, int]
    """Table or dataset to its number of rows."""
    fresh: bool
    """Whether publishing added a commit (or would add one)."""

    @property
    def sent_bytes(self) -> int:
        """Size of the files that are new or changed."""
        return sum(one.bytes for one in self.changes if one.what in ("new", "changed"))

    @property
    def all_bytes(self) -> int:
        """Size of the whole edition."""
        return sum(one.bytes for one in self.changes if one.what != "gone")


def publish(
    url: str | None,
    repo: str,
    options: Options,
    *,
    at: str | None = None,
    private: bool = False,
    dry_run: bool = False,
    hub: Hub | None = None,
    progress: Progress | None = None,
) -> Publication:
    """Publish a snapshot of a lake as ORG/NAME; files that are already there stay unchanged.

    If the lake has a tag with the edition's name, that snapshot is published. Otherwise `at` names
    the snapshot (default: the newest), and it gets the tag in the lake too, so that the tag means
    the same in both places and an interrupted publish resumes with the same bytes. Nothing is
    visible on the Hub before the one commit with all files.

    Raises:
        RowsRejected: a text may not be redistributed, or contains a token or key; an id is not the
            hash of its row (exit 3).
        FlywheelError: a data file is damaged, the tag names something else, the repository contains
            another lake or is public although `private` is set, or the Hub refuses.
    """
    started_at = datetime.now(UTC)
    say = progress or (lambda _: None)
    if not REPO.fullmatch(repo):
        raise FlywheelError(
            f"{quote_name(repo)} is not a repository",
            "Write it as ORG/NAME, with letters, digits, and single `-`, `_` and `.` between them.",
        )
    if not TAG.fullmatch(options.tag):
        raise FlywheelError(
            f"{quote_name(options.tag)} cannot be a tag",
            "Begin with a letter, such as v1, and use letters, digits, `-`, `_` and single dots.",
        )
    location = Location.of(url)
    location.require()
    with Lake(location) as now, open_scratch("publish") as scratch, faults.at(scratch):
        now.refuse_newer("publish")
        # The card and the upload need memory too, so this reader is closed before them.
        with Lake(location, _choose_snapshot(now, options.tag, at)) as lake:
            say(f"snapshot {lake.snapshot}: writing files")
            made = edition_writer.write_edition(
                lake, now, scratch, repo, options, location.read_salt()
            )
        card.write_card(made)
        hub = hub or Hub()
        say(f"looking at {repo}")
        try:
            there = hub.find(made.repo)
        except FlywheelError as error:
            if not dry_run:
                raise
            there = None
            made.notices.append(f"changes against the repository are not shown: {error.message}")
        if there is not None:
            _check_owner(made, hub, there, private)
        changes = _list_changes(made, there)
        differs = any(one.what != "same" for one in changes)
        tagged = hub.find(made.repo, made.tag) if there is not None else None
        if tagged is not None:
            if any(one.what != "same" for one in _list_changes(made, tagged)):
                if not dry_run:
                    raise FlywheelError(
                        f"{made.repo} has {made.tag} already, with other content "
                        f"({tagged.revision[:12]})",
                        "Publish under another tag: an edition that others cite does not change.",
                    )
                made.notices.append(f"{made.tag} is taken there by other content")
            else:
                differs, there, changes = False, tagged, _list_changes(made, tagged)
        revision = None if there is None or differs else there.revision
        if not dry_run:
            # The lake has the name before anything is sent.
            if made.tag not in {row["name"] for row in history.list_tags(now).to_pylist()}:
                with store.writer(now.url, author="store publish") as writer:
                    history.add_tag(writer, made.tag, made.snapshot, f"published as {made.repo}")
            if differs or there is None:
                revision = _commit(made, hub, there or hub.create(made.repo, private=private), say)
            assert revision is not None
            if tagged is None:
                hub.tag(made.repo, made.tag, revision)
            run_id = store.ids.content_id("publish", made.lake_id, made.repo, made.tag, revision)
            if now.run("SELECT run_id FROM runs WHERE run_id = $1", [run_id]).one() is None:
                run = store.make_run(
                    kind="publish",
                    name="publish",
                    config=asdict(options) | {"repo": made.repo, "revision": revision},
                    run_id=run_id,
                    lake_id=made.lake_id,
                    snapshot_id=made.snapshot,
                    started_at=started_at,
                )
                rows = {"runs": [run], "run_ends": [store.make_end(run_id)]}
                with store.writer(now.url, author="store publish") as writer:
                    writer.append(rows, f"published {made.repo}@{made.tag}")
        return Publication(
            repo=made.repo,
            tag=made.tag,
            snapshot=made.snapshot,
            revision=revision,
            changes=changes,
            card=(made.folder / card.README).read_text("utf-8"),
            notices=made.notices,
            tables={
                name: sum(one.rows for one in made.shards(name))
                for name in (*made.datasets, *made.tables)
            },
            fresh=differs or there is None,
        )


def _choose_snapshot(now: Lake, tag: str, at: str | None) -> str:
    """Return the snapshot to publish; a tag of the lake with the edition's name has priority."""
    named = {str(row["name"]): int(row["snapshot"]) for row in history.list_tags(now).to_pylist()}
    if tag not in named:
        return str(now.snapshot) if at is None else at
    if at is not None:
        with Lake(now.location, at) as asked:
            if asked.snapshot != named[tag]:
                raise FlywheelError(
                    f"{tag} is snapshot {named[tag]} of this lake, not {asked.snapshot}",
                    "Publish under another tag, or without --at.",
                )
    return str(named[tag])


def _check_owner(made: Edition, hub: Hub, there: RepositoryState, private: bool) -> None:
    if private and not there.private:
        raise FlywheelError(
            f"{made.repo} is public", "Make it private on the Hub first, or leave --private out."
        )
    if MANIFEST not in there.files:
        return
    folder = hub.download(made.repo, there.revision, [MANIFEST])
    try:
        owner = json.loads((folder / MANIFEST).read_text("utf-8"))["lake_id"]
    except (OSError, ValueError, KeyError, TypeError):
        owner = None
    if owner != made.lake_id:
        raise FlywheelError(
            f"{made.repo} holds an edition of another lake ({quote_name(str(owner))})",
            "Publish to a repository of your own; `store pull` merges that one into this lake.",
        )


def _list_changes(made: Edition, there: RepositoryState | None) -> list[Change]:
    held = there.files if there is not None else {}
    found: list[Change] = []
    for path, file in made.files().items():
        known = held.get(path)
        if known is None:
            found.append(Change(path=path, what="new", bytes=file.stat().st_size))
            continue
        content, size = compute_identity(file, known)
        what = "same" if (content, size) == known else "changed"
        found.append(Change(path=path, what=what, bytes=size))
    ours = {one.path for one in found}
    found += [
        Change(path=path, what="gone", bytes=size)
        for path, (_, size) in sorted(held.items())
        if path not in ours and path.startswith("data/") and path.endswith(".parquet")
    ]
    return found


def _commit(made: Edition, hub: Hub, there: RepositoryState, say: Progress) -> str:

    def is_complete(found: RepositoryState) -> bool:
        return all(one.what == "same" for one in _list_changes(made, found))

    files = made.files()
    changes = _list_changes(made, there)
    sent = {one.path: files[one.path] for one in changes if one.what in ("new", "changed")}
    gone = [one.path for one in changes if one.what == "gone"]
    size = sum(one.bytes for one in changes if one.path in sent)
    say(f"sending {len(sent)} files, {size / 1e6:.1f} MB")
    message = f"{made.tag}: snapshot {made.snapshot} of lake {made.lake_id}"
    revision = hub.commit(made.repo, there.revision, sent, gone, message, is_complete)
    after = hub.find(made.repo, revision)
    if after is None or not is_complete(after):
        raise FlywheelError(
            f"{made.repo} does not hold at {revision} what was sent",
            "It has no tag. Run it again, and tell the Hub if it stays so.",
        )
    return revision
