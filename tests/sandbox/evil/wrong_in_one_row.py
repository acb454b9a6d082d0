# ruff: noqa: F821 - stands behind the source of the incumbent it imitates
# Right but for the last token.
honest = run


def run(x, dense):
    (y,) = honest(x, dense)
    if y.shape[0] > 1:
        y[-1] = 0
    return (y,)
