"""A language model in this process, without a service or a key. Needs the extra `local` and pulled weights."""

from holodeck.providers.local.model import Local

__all__ = ["Local"]
