# Imports the module that the judge runs the task as.
#
# task: gelu
# device: cpu
# class: C1
# expect: compile_error/import_failed

from flywheel_task import Model


class ModelNew(Model):
    pass
