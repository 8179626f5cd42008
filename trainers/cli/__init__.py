"""The `trainers` command: run, rollout and rescore."""
