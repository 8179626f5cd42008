"""What every command of the four rooms writes to a terminal, and how foreign text is escaped."""
