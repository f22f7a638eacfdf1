"""Parts of a controller: leader election, the work queue, rate limits of writes, Events, and logged errors."""
