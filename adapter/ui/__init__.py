"""The web pages of the adapter (`--ui-address`): its rules, their metrics, and a box in which to try a rule.

pages       the paths, and the right that each requires
overview    all rules, with what `check` finds, Prometheus, the rules file, cache and coalescing
rule_page   one rule: series, metrics, examples; the objects with rules
metric_page one metric, as `explain` explains it, and pictures of its forecasts
trial       check a rule that is not in the file
reports     what the pages read, and the reports of `check` and `explain`, shared by all open pages
formatting  ages, times, names and rules as texts

The pages read the active rules, and change nothing.
"""
