# Its bytes are no UTF-8.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: compile_error/syntax_error

x = "éÿ"
