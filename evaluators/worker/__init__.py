"""The worker process that runs a candidate, the fork server that starts it, and its handle."""

RECORD = "failed.json"
"""Name of the record of a failed build. It is here because readers of it do not import torch."""
