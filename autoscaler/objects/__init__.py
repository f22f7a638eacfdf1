"""HorizontalPodAutoscalers, scales and pods as JSON: reading them, and what an API server adds to them and refuses."""
