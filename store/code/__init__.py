"""Read kernel code: completions, features, near-duplicates, families of tasks."""
