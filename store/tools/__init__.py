"""Tools of the MCP server that read a lake; each file is one tool."""
