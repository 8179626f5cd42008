# Holds nothing at all.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: compile_error/no_entry_point

