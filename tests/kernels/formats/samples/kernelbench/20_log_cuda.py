import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = "__global__ void log_kernel(const float* x, float* y, int n) {}"
compiled = load_inline(name="log", cpp_sources="", cuda_sources=SOURCE, functions=[])


class ModelNew(nn.Module):
    def forward(self, x):
        return compiled.log(x)
