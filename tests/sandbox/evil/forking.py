# ruff: noqa: F821 - stands behind the source of the incumbent it imitates
# Leaves a daemon behind, and computes.
import os
import time

honest = run
started = []


def run(x, dense):
    if not started:
        started.append(1)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True:
                    time.sleep(0)
            os._exit(0)
    return honest(x, dense)
