"""Trees of processes: messages between them, their limits, freezing them, ending them."""
