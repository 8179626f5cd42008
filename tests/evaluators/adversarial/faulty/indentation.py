# Tabs and spaces do not agree.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: compile_error/syntax_error

class ModelNew:
    def forward(self, x):
	return x
