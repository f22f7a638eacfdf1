"""Process 2: the HorizontalPodAutoscaler loop.

A step goes left to right, never back: key from the queue, observe (all I/O), decide (pure), act (scale, status,
events). The rooms, each of which knows only those below it:

    cli, commands   flags, and the commands beside `run`
    loop            the running process: queue, observe, act, memory, leader election, endpoint
    records         what is told of decisions: records, sentences, the audit file, shadow mode's comparisons
    objects         Kubernetes JSON into typed data, defaults and validation
    core            the decision: pure functions on typed data
"""
