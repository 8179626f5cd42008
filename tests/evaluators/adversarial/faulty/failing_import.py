# Raises while it is imported.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: compile_error/import_failed

raise RuntimeError("not on this machine")
