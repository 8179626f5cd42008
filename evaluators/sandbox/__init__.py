"""Starting worker processes, and the walls around processes that run untrusted code."""
