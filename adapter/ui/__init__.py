"""The web pages of the adapter (`--ui-address`): its rules, their metrics, and a box in which to try a rule.

sources     what the pages read
pages       the paths, and the right that each requires
overview    all rules, with what `check` finds, Prometheus, the rules file, cache and coalescing
rule_page   one rule: series, metrics, examples
metric_page one metric, as `explain` explains it
trial       check a rule that is not in the file
reports     the reports of `check` and `explain`, shared by all open pages
formatting  ages, times, names and rules as texts

The pages read the active rules, and change nothing.
"""
