"""Client for servers of OpenAI's chat completions API, and the keys that each server gets.

Trainers sample from such servers, and the audit asks them about kernels. Everything a server sends
is foreign text.
"""

from store.endpoint.client import AnswerFailed, Client, Unreadable
from store.endpoint.keys import KEY, Address, Keys

__all__ = ["KEY", "Address", "AnswerFailed", "Client", "Keys", "Unreadable"]
