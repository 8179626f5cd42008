# Fused C++ compiled by torch.utils.cpp_extension.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct
# may: fails_infinities fails_nan
# needs: compiler
# slow: yes

from torch.utils.cpp_extension import load_inline

import torch
from torch import nn

SOURCE = """
torch::Tensor product_relu(torch::Tensor x, torch::Tensor w) {
    x = x.contiguous();
    w = w.contiguous();
    auto y = torch::empty({x.size(0), w.size(1)}, x.options());
    const float *a = x.data_ptr<float>(), *b = w.data_ptr<float>();
    float *c = y.data_ptr<float>();
    const long rows = x.size(0), inner = x.size(1), columns = w.size(1);
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) {
            float sum = 0;
            for (long k = 0; k < inner; k++) sum += a[i * inner + k] * b[k * columns + j];
            c[i * columns + j] = sum > 0 ? sum : 0;
        }
    return y;
}
"""
CODE = load_inline("product_relu", SOURCE, functions=["product_relu"], extra_cflags=["-O2"])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return CODE.product_relu(x, self.weight)
