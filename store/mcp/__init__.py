"""Serve tools to agents over the Model Context Protocol (MCP)."""
