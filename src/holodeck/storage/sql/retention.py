"""SQL statements that delete old responses and conversations, one batch at a time."""

from __future__ import annotations

from holodeck.lib.limits import DELETE_BATCH
from holodeck.storage.sql.in_progress import IS_UNFINISHED

# Goes through the callers one by one, with the index by caller and age: an index by age alone would be one more to
# update with every response.
_OLD_RESPONSES = f"""
WITH RECURSIVE owners (name) AS (
    SELECT MIN(owner) FROM responses
    UNION ALL
    SELECT (SELECT MIN(owner) FROM responses WHERE owner > owners.name) FROM owners WHERE owners.name IS NOT NULL)
SELECT id FROM owners JOIN responses ON owner = owners.name
WHERE created_at < $1 AND NOT {IS_UNFINISHED} LIMIT {DELETE_BATCH}"""  # noqa: S608 - no values

_OLD_CONVERSATIONS = f"SELECT id FROM conversations WHERE created_at < $1 LIMIT {DELETE_BATCH}"  # noqa: S608 - no values

DELETE_OLD = (
    f"DELETE FROM responses WHERE id IN ({_OLD_RESPONSES})",  # noqa: S608 - no values
    f"DELETE FROM conversations WHERE id IN ({_OLD_CONVERSATIONS})",  # noqa: S608 - no values
)
"""Each statement deletes one batch of what was created before $1, and is repeated until it deletes nothing."""
