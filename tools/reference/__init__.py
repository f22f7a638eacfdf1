"""The generated pages of docs/reference: flags from the command lines, metrics from the registries."""
