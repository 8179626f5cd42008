"""The server of a judge service: its addresses, its access rules, and the thread with the lake."""
