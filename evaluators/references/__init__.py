"""The process that runs a task's own code, and the judge's handle to it."""
