"""`python -m adapter`, and the console script milliscale-adapter."""

from kube.process.starting import importing

with importing():
    from adapter.cli import main

if __name__ == "__main__":
    main(prog_name="python -m adapter")
