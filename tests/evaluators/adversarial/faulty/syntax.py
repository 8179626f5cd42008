# A bracket is never closed.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: compile_error/syntax_error

class ModelNew(:
    pass
