"""The `store` command: create, fill, query, name, compare and maintain a lake."""

from __future__ import annotations

from store.cli import hub, pages, query, snapshots, transfer, upkeep
from store.commandline import members
from store.commandline.help import make_room_app

app = make_room_app(
    "store",
    "Kernel history in a lake: versioned Parquet tables that you query with SQL.",
    [
        "store import starter",
        'store query "FROM leaderboard"',
        'store query --at v1 "SELECT count(*) FROM kernels"',
        "store --lake ./other log",
        "store show diag_matmul",
    ],
)
for _commands in (query, snapshots, pages, transfer, hub, upkeep):
    _commands.add_to(app)


def main() -> None:
    """Run the `store` command."""
    members.run(app, *transfer.groups())


if __name__ == "__main__":
    main()
