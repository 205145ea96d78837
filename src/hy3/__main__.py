"""`python -m hy3` is `hy3`."""

from hy3.cli import main

main()
