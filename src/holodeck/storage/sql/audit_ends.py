"""SQL statements about the ends of audit logs that both databases share; `in_progress.for_sqlite` converts them."""

from __future__ import annotations

READ_AUDIT_END = "SELECT seq, hash FROM audit_ends WHERE file = $1"
STORE_AUDIT_END = """
INSERT INTO audit_ends (file, seq, hash) VALUES ($1, $2, $3)
ON CONFLICT (file) DO UPDATE SET seq = excluded.seq, hash = excluded.hash"""
