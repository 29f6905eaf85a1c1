"""Tool schemas as each provider accepts them, and the way back for the arguments."""

from holodeck.providers.schemas.adapt import Adapted, adapt
from holodeck.providers.schemas.dialect import Dialect

__all__ = ["Adapted", "Dialect", "adapt"]
