"""Servers that speak OpenAI's chat completions: which key goes where, and one way to ask them.

Trainers sample from them, and the audit asks them about kernels. What a server sends is foreign.
"""

from store.endpoint.client import AnswerFailed, Client, Unreadable
from store.endpoint.keys import KEY, Address, Keys

__all__ = ["KEY", "Address", "AnswerFailed", "Client", "Keys", "Unreadable"]
