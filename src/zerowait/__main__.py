"""``python -m zerowait``: the command line."""

from zerowait.cli import main

if __name__ == "__main__":  # tools for documentation import every module
    main()
