"""`kubectl milliscale`: the console script kubectl-milliscale, which kubectl finds on PATH."""

import signal

from kube.process.starting import importing

with importing():
    from kubectl_milliscale.cli import main as commands


def main() -> None:
    """Run the command line under the name that users type."""
    # As for SIGTERM: contexts end the child processes, and remove the files.
    signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
    commands(prog_name="kubectl milliscale")


if __name__ == "__main__":
    main()
