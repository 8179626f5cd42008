"""What a lake in a folder needs of its host: a local file system, and locks between processes."""

READERS = "readers"
"""File of a lake that queries lock, and that its writers make."""
