"""``python -m zerowait``: the command line."""

from zerowait.cli import main

main()
