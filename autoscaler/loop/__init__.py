"""The running loop: who is next, observe, act, remember; everything that talks to the API server or owns a task."""
