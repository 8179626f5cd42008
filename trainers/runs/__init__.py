"""One run of a trainer: its options, its processes, and what the lake keeps of it."""
