"""The operator's rules for hosts that requests name: which ones, by which scheme, and at which addresses."""

from __future__ import annotations

from fnmatch import fnmatchcase

from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.lib.net.ip_policy import ANY_ADDRESS, IPPolicy, is_public_host, parse_networks
from holodeck.models.gateway import RequestHosts
from holodeck.models.url import BadURLError, Endpoint, parse_endpoint


class HostPolicy:
    """Checks URLs of requests against `request_servers` or `request_files` of the gateway's file."""

    def __init__(self, config: RequestHosts) -> None:
        self._hosts = config.hosts
        self._networks = parse_networks(config.allow_private_hosts)
        self._private_hosts = {host.lower() for host in config.allow_private_hosts}
        self._insecure_hosts = {host.lower() for host in config.allow_insecure_hosts}

    def check(self, url: str, where: str) -> None:
        """Raise `BadRequestError` for a URL that is not allowed. Nothing is dialled or resolved."""
        scheme, host, _ = _parse_url(url, where)
        if scheme != "https" and host not in self._insecure_hosts:
            refuse(f"Invalid '{where}': it must use https://.", where, "invalid_url")
        if self._hosts is not None and not any(fnmatchcase(host, pattern.lower()) for pattern in self._hosts):
            message = f"Invalid '{where}': the operator of this gateway does not allow this host."
            refuse(message, where, "invalid_url")

    def check_public(self, url: str, where: str) -> None:
        """Raise `BadRequestError` for a URL that another program would fetch from a private network.

        Judges the host as it is written: an address that a name resolves to is that of the other program.
        """
        host = _parse_url(url, where).host
        if is_public_host(host) or host in self._private_hosts or IPPolicy(networks=self._networks).is_allowed(host):
            return
        refuse(f"Invalid '{where}': its address is not a public one.", where, "invalid_url")

    def ip_policy_for(self, host: str) -> IPPolicy:
        """Which addresses of this host may be dialled."""
        return ANY_ADDRESS if host in self._private_hosts else IPPolicy(networks=self._networks)


def _parse_url(url: str, where: str) -> Endpoint:
    try:
        return parse_endpoint(url)
    except BadURLError as error:
        reason = str(error).removeprefix("'url' ")
        refuse(f"Invalid '{where}': it {reason}.", where, "invalid_url")
