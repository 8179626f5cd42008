"""Tools of the MCP server that write: submit a kernel, get its verdict; each file is one tool."""
