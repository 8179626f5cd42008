"""What a lake in a folder needs of its host: a local file system, and locks between processes."""
