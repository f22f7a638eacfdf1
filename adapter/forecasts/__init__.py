"""Forecasts of a metric's load, from its own history. Pure: no I/O, no clock, no state outside of arguments.

options  what a rule says about its forecast
series   a load with one value a minute, and other days' values at the same time of day
model    the regression: fit on a history, expect from recent values
gate     whether forecasts would have saved pods: a replay of the last days

Times are seconds since the epoch. series, model, gate, live and preview import numpy: import them where a forecast is
used.
"""

import os

# Before numpy is imported. The matrices are small: with several threads a fit takes twice the CPU time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
