# The entry point is a number.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: compile_error

ModelNew = 3
