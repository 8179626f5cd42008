"""The durable queue of a judge service: a SQLite file beside the lake's own parts on this host."""
