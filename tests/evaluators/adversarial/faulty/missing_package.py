# Imports what is not there.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: compile_error/import_failed

import no_such_package_at_all
