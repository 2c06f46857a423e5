"""Names that benchmarks let programs assume; a script of its own, run before a program.

APPS, TACO and LiveCodeBench import these modules, and all that is in them, in front of programs.
Here they become builtins, so that a program's own names, and real builtins, go first.
"""

import builtins
import importlib
import sys

MODULES = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools "
    "operator io sys json typing"
)


def assume_modules() -> None:
    """Let the modules and their public names be found where nothing else has the name."""
    space = vars(builtins)
    for name in MODULES.split():
        module = importlib.import_module(name)
        space.setdefault(name, module)
        for public in getattr(module, "__all__", None) or dir(module):
            if not public.startswith("_"):
                space.setdefault(public, getattr(module, public))


def allow_long_integers() -> None:
    """Let programs read and print whole numbers of any length, as before Python 3.11."""
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)


if __name__ == "__main__":
    allow_long_integers()
    assume_modules()
