"""The process that runs a task's own text, and what passes between it and the judge."""
