"""The judge as a service: clients submit kernels over HTTP, and one engine judges them.

    client ─HTTP─▶ server ─▶ queue (SQLite) ◀─claims, answers─ judging: this host, or a Ray cluster
                               ▲
                               └─cases, verdicts─ recorder ─▶ lake

One process holds the lake and a durable queue beside it. Judge processes and actors of a cluster
hold neither: they get the texts of a case and send rows back.
"""
