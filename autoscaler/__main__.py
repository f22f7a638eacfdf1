"""`python -m autoscaler`, and the console script milliscale-autoscaler."""

from kube.process.starting import importing

with importing():
    from autoscaler.cli import main

if __name__ == "__main__":
    main(prog_name="python -m autoscaler")
