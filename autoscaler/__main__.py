"""`python -m autoscaler`, and the console script milliscale-autoscaler."""

import sys

try:
    from autoscaler.cli import main
except KeyboardInterrupt:  # the imports take a while
    sys.exit(130)

if __name__ == "__main__":
    main(prog_name="python -m autoscaler")
