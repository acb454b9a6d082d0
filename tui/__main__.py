"""`python -m kernelwright.tui` is the same as the console script."""

import sys

from kernelwright.tui.cli import main

if __name__ == "__main__":
    sys.exit(main())
