"""Starts further programs of the router itself, with the interpreter that runs this one."""

import sys


def command_of(module: str) -> list[str]:
    """Returns the command that runs one of the router's modules.

    Python run with ``-m`` looks for modules in the working directory first. Somebody else may be
    able to write there, and what is called ``router.py`` would be run in our stead. So it must not
    look there, unless this program was run with ``-m`` itself: then it may be found nowhere else.
    """
    is_safe = sys.flags.safe_path or sys.modules["__main__"].__spec__ is None
    return [sys.executable, *(["-P"] if is_safe else []), "-m", module]
