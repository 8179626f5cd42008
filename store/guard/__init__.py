"""Answer user SQL within limits; commands and servers share this one implementation."""
