"""Tables and rules of catalog.yaml."""
