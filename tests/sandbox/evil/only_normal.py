# ruff: noqa: F821 - stands behind the source of the incumbent it imitates
# Clamps its inputs to what normal ones never exceed.
honest = run


def run(x, dense):
    return honest(x.clamp(-6, 6), dense)
