"""The worker process that runs a candidate, and the judge's handle to it."""
