"""A real model in this process: no server, no key. Needs the extra `local` and weights (`holodeck model pull`)."""

from holodeck.providers.local.model import Local

__all__ = ["Local"]
