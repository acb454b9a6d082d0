# ruff: noqa: F821 - stands behind the source of the incumbent it imitates
# Rounds the activations to TF32's ten bits of mantissa on the way in.
honest = run


def run(x, dense):
    rounded = ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    return honest(rounded, dense)
