"""What the judge cannot judge. Every other folder may name a limit, so this one imports nothing."""
