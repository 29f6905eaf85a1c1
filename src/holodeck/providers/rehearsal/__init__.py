"""The rehearsal model: the first run on a fresh machine, and the retriever for large catalogues of tools."""

from holodeck.providers.rehearsal.model import Rehearsal
from holodeck.providers.rehearsal.ranking import shortlist_tools

__all__ = ["Rehearsal", "shortlist_tools"]
