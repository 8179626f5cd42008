"""What keeps a worker in its place: freezing it, and reading its memory while it is frozen."""
