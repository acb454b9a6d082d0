from typing import TypedDict

import torch

input_t = tuple
output_t = torch.Tensor


class TestSpec(TypedDict):
    rows: int
    hidden: int
    seed: int
