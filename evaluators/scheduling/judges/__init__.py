"""Judge processes: the one that judges, and the side that starts it and asks it."""
