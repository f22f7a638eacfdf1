"""Process 2: the HorizontalPodAutoscaler controller.

A reconciliation passes these stages once: key from the queue, observe (all reads), decide (pure), act (scale, status,
events). docs/architecture.md has a drawing. Each of these layers imports only those below it, and none the adapter:

    cli, commands   flags, and the commands besides `run`
    loop            the running process: queue, observe, act, history, leader election, HTTP endpoint
    records         records of decisions, their sentences, the audit file, comparisons of shadow mode
    objects         Kubernetes JSON to typed data, defaults and validation
    core            the decision: pure functions on typed data
"""
