"""Compare two authors, judge versions, hosts or devices by the samples that a lake has of both."""
