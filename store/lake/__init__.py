"""Open a lake and query it."""
