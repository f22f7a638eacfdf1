"""`kubectl milliscale`: the console script kubectl-milliscale, which kubectl finds on PATH."""

import sys


def main() -> None:
    """Run the command line under the name that users type."""
    try:
        from kubectl_milliscale.cli import main as commands
    except KeyboardInterrupt:  # the imports take a while
        sys.exit(130)
    commands(prog_name="kubectl milliscale")


if __name__ == "__main__":
    main()
