"""Read-only web pages of a process: HTML rendered here, with server-sent events.

options        the address of the pages (`--ui-address`)
server         serves pages: on loopback over HTTP, elsewhere over TLS with authentication
pages          HTML from templates, styles and scripts, and one request, as pages see it
plotly         plotly.js, for charts
event_stream   server-sent events
explanation    where a metric comes from, as the adapter explains it
live           pages that stay current, rendered one at a time

The pages themselves are in the packages of the processes.
"""
