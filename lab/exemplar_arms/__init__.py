"""Do exemplars and their scores lead to faster kernels? The experiment of docs/runs/PROTOCOL.md.

python -m lab.exemplar_arms OUT --preset PRESET

Tasks with knobs train; held-out tasks of their families and a held-out family are searched without
training by five arms (none, random, top, bucket, shuffled) with several seeds, all on one lake with
a namespace each. The presets `turner` search with a program that turns a knob of the kernel that
looks fastest in its prompt (turner.py). They show whether the search carries information from round
to round, and nothing about models. The preset gpu-model trains a model by supervised learning with
improvement pairs and searches with it. The preset gpu-stage3 trains such a model by stage 3 with
each arm, and searches with the trained models. The preset gpu-history searches with a model of
supervised learning alone, in a lake that has kernels of the held-out tasks. The best kernels are
measured again by the full protocol. To resume an interrupted run, run the same command again; it
skips the steps that are done.
"""
