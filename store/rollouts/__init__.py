"""Log rollouts and metrics of any framework: a run, and the rows that its rollouts become."""
