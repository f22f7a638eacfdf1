"""The web pages of the autoscaler (`--ui-address`): all HPAs, and one HPA with its decisions.

sources       what the pages read
page_context  what all pages share
pages         the paths
listing       the table of all HPAs: `rows`, filters, order, its events
hpa_page      one HPA: its decisions as `explain` words them, their charts (`figures`), its settings, its events
what_if       the form to change a spec, and what the kept decisions would have been with it

The pages read the controller's state and write nothing.
"""
