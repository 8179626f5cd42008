"""What a session is checked for: noise, drift, other threads, impossible times, wrong outputs."""
