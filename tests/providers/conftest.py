"""What tests of models share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from providers.certificates import Authority

from holodeck.lib.net.tls import tls_context


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Authority]:
    """The certificate authority of the tests."""
    found = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(found.file))
    tls_context.cache_clear()
    yield found
    tls_context.cache_clear()
