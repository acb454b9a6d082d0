#!POPCORN leaderboard row_scale
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, factors, index, out = data
    torch.addcmul(x[index] + factors["offset"], x, factors["scale"][:, None], out=out)
    return out
