"""`python -m milliscale`, and the console script milliscale."""

from kube.process.starting import importing

with importing():
    from milliscale.cli import main

if __name__ == "__main__":
    main(prog_name="python -m milliscale")
