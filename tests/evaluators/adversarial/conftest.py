"""Candidates are read as text and run in a sandbox alone: nothing here is to be collected."""

collect_ignore_glob = ["*"]
