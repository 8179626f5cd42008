"""Do right scores help? The experiment of docs/runs/PROTOCOL-2.md; README.md says how to run it."""
