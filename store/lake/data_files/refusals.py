"""What to do when a server with S3's protocol refuses a request, or does not answer."""

from __future__ import annotations

from store.errors import LakeUnreachable, summarize_error

_EXPIRED = ("expiredtoken", "token has expired", "tokenrefreshrequired")
_SKEWED = ("requesttimetooskewed", "difference between the request time")
_UNREACHABLE = (
    "could not connect to server",
    "could not resolve host",
    "couldn't resolve host",
    "network_connection",
)
_FORBIDDEN = (
    "http code 403",
    "forbidden",
    "accessdenied",
    "access_denied",
    "access denied",
    "invalidaccesskeyid",
    "signaturedoesnotmatch",
)


def describe_refusal(error: Exception, place: str) -> LakeUnreachable | None:
    """Return an error that says what to do, or None for an error of another kind.

    Args:
        error: What DuckDB or Arrow raised, with the answer of the server in its text.
        place: The data files, such as s3://bucket/prefix.
    """
    text = str(error).lower()
    if any(words in text for words in _EXPIRED):
        return LakeUnreachable(
            f"the credentials for {place} have expired",
            "Renew them, as with `aws sso login` or a new AWS_SESSION_TOKEN, and run this again.",
        )
    if any(words in text for words in _SKEWED):
        return LakeUnreachable(
            f"{place} refuses this host, because its clock is off",
            "Set the clock, as with an NTP service, and run this again.",
        )
    if any(words in text for words in _FORBIDDEN):
        return LakeUnreachable(
            f"these credentials have no right to {place}: {summarize_error(error)}",
            "Test with `aws s3 ls` whether they are valid and not expired, or ask the owner of the "
            "bucket for the right.",
        )
    if any(words in text for words in _UNREACHABLE):
        return LakeUnreachable(
            f"no connection to {place}: {summarize_error(error)}",
            "Test the network and AWS_ENDPOINT_URL, and run this again.",
        )
    return None
