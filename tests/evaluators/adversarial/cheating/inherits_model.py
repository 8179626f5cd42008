# Inherits from the reference's class, in the hope that it stands in the same namespace.
#
# task: gelu
# device: cpu
# class: C1
# expect: compile_error/import_failed

class ModelNew(Model):
    pass
