"""The worker process that runs a candidate, the fork server that starts it, and its handle."""
