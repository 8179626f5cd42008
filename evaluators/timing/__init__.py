"""How long a call takes, by clocks that the code under test cannot reach."""
