"""The judge as a service: clients submit kernels over HTTP, and workers on any host judge them.

    client ─HTTP─▶ server ─▶ queue (SQLite) ◀─claims─ worker: the judges of one host
                     └─▶ lake: kernels, verdicts        ▲
                          └────────── answers ──────────┘

One server process holds the lake and a durable queue beside it. Workers hold neither: they claim
cases and send rows back. `evaluators serve` starts a worker for the devices of its own host;
`evaluators join URL` is the same worker on another host.
"""
