"""Addresses of servers: which are valid, and what of them may be shown."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from hyperlink import URL

from svc.workload.faults import BadAddress


class SentAddress(URL):
    """An address as ``treq`` sends it: hyperlink would encode a number of IPv6 as a name, and refuse it."""

    def to_uri(self) -> URL:
        """Return it in ASCII."""
        if ":" not in self.host:
            return super().to_uri()
        return self.replace(host="number").to_uri().replace(host=self.host)


def check_address(url: str, what: str) -> None:
    """Return when requests can be sent to this address, and nothing in it is secret.

    :raises BadAddress: they can't, or something may be; it is called ``what`` there.
    """
    try:
        address = SentAddress.from_text(url)
        address.to_uri()  # as the client will do, which checks the name
        scheme, host = urlsplit(url).scheme, urlsplit(url).hostname
    except ValueError:
        raise BadAddress(what) from None
    valid = scheme in {"http", "https"} and host and 0 < (address.port or 1) < 65536 and ("[" in url) <= (":" in host)
    if not valid or not set(url).isdisjoint("@?#"):
        raise BadAddress(what)


def public_origin(url: str) -> str:
    """Return the public part of an address: scheme, host and port."""
    address = urlsplit(url)
    return f"{address.scheme}://{address.netloc.rpartition('@')[2]}"


def encode_path(*segments: str) -> str:
    """Return the path of these segments, each encoded.

    Whole segments of dots mean other paths (RFC 3986 6.2.2.3), and what sends requests would go there.
    """
    return "".join(f"/{quote(each, safe='') if each not in {'.', '..'} else each.replace('.', '%2E')}" for each in segments)
