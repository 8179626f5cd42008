"""Look after a lake: history, maintenance, integrity."""
