"""Tools of the MCP server that make prompts; each file is one tool."""
