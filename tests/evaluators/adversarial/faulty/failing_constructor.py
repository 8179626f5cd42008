# The constructor raises.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: compile_error/init_failed

class ModelNew:
    def __init__(self, columns):
        raise ValueError(columns)
