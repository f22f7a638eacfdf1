"""What the processes of the demo do together, and the plugin with them: one bundle for both files."""
