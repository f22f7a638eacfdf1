"""Process 2: the HorizontalPodAutoscaler loop.

A step goes left to right, never back: key from the queue, observe (all I/O), decide (pure), act (scale, status,
events).
"""
