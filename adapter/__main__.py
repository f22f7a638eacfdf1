"""`python -m adapter`, and the console script milliscale-adapter."""

from adapter.cli import main

if __name__ == "__main__":
    main(prog_name="python -m adapter")
