"""Values that follow the clock, for rules that need no Prometheus.

schedule  the value at a time: windows, dates, holidays, ramps
cron      cron expressions in a time zone, with daylight saving time
holidays  iCalendar

All times are seconds since the epoch, all values integer milli-units.
"""
