"""The page that sections of a report appear on."""
