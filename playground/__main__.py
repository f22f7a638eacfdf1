"""`python -m playground`."""

from playground.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main(prog_name="python -m playground")
