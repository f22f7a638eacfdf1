"""Forecasts of a metric's load, from its own history. All modules but registry are pure: no I/O and no clock.

options  what a rule says about its forecast
model    the regression: fit on a history with one value a minute, expect from recent values
gate     whether forecasts would have saved pods: a replay of the last days
live     the forecast of one metric while it is served, and a preview of its next day
registry the forecasts of all metrics that are requested: the state, and the work in the background

Times are seconds since the epoch. model, gate and live import numpy: import them where a forecast is used.
"""

import os

# Before numpy is imported. The matrices are small: with several threads a fit takes twice the CPU time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
