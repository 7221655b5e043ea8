"""``python -m router`` is the program ``router``."""

from router.cli.main import main

if __name__ == "__main__":
    main(prog_name="router")
