"""The three stages on generated tasks, from an empty folder to a table of held-out families.

python -m lab.three_stages OUT [--preset cpu-small|h200] [--model FOLDER]

Base model, stage 1 (sft), stages 1 + 2 (self-supervised) and 1 + 2 + 3 (contrastive, in several
arms of equal budget, each from several seeds) answer the same prompts on families that no training
has seen. Another --seed is another run from the beginning, in a folder of its own. Every step is a
command of the product in a process of its own; OUT/logs has its arguments and output. With
several devices the trainings of stage 3 run side by side, each with a GPU of its own. At the end
the models answer side by side on any number of GPUs, since sampling a small one waits for the
processor; their kernels are judged after that. Whatever ends this program, SIGKILL included, ends
its commands. Run the same command again to resume; steps that are done are skipped. A command that
exceeds its --budget-s is interrupted, and its results count: attempts and verdicts are stored as
they come, and the last checkpoint of a training is evaluated.

OUT/result holds what docs/runs keeps: tables as Parquet, reports, the answers of docs/runs/*.sql.
"""
