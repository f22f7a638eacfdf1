"""Forecasts of a metric's load, from its own history. Pure: no I/O, no clock, no state outside of arguments.

options  what a rule says about its forecast
series   a load with one value a minute, and other days' values at the same time of day
model    the regression: fit on a history, expect from recent values
gate     whether forecasts would have saved pods: a replay of the last days

Times are seconds since the epoch. All modules but options import numpy: import them where a forecast is used.
"""
