# ruff: noqa: F821 - stands behind the source of the incumbent it imitates
# Rounds the activations to bfloat16 on the way in.
honest = run


def run(x, dense):
    return honest(x.bfloat16().float(), dense)
