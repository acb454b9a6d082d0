import torch
from task import input_t, output_t


def generate_input(rows: int, hidden: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda").manual_seed(seed)
    x = torch.randn(rows, hidden, device="cuda", generator=gen)
    factors = {"scale": torch.randn(rows, device="cuda", generator=gen), "offset": 0.5}
    index = torch.randint(0, 4, (rows,), device="cuda", generator=gen)
    return x, factors, index, torch.empty_like(x)


def ref_kernel(data: input_t) -> output_t:
    x, factors, index, out = data
    out.copy_(x * factors["scale"][:, None] + factors["offset"] + x[index])
    return out


def check_implementation(data: input_t, output: output_t) -> str:
    return "" if torch.allclose(output, ref_kernel(data), rtol=1e-4, atol=1e-4) else "mismatch"
