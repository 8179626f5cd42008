# Imports the module that the judge runs the task as.
#
# task: gelu
# device: cpu
# class: C1
# expect: compile_error/import_failed

from task import Model


class ModelNew(Model):
    pass
