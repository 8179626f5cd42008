"""Trees of processes: messages between them, limits, freezing and ending them."""
