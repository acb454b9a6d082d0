# ruff: noqa: F821 - stands behind the source of the incumbent it imitates
# One per cent too large everywhere.
honest = run


def run(x, dense):
    return (honest(x, dense)[0] * 1.01,)
