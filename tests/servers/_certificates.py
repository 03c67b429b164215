"""Certificates that live as long as the server that shows them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from ._process import find_program

_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_CA: Final = ("-x509", "-days", "2", "-addext", "keyUsage=critical,keyCertSign")

# Python 3.13 verifies strictly: the key identifiers must be there.
_EXTENSIONS: Final = """
subjectAltName = DNS:localhost, IP:127.0.0.1
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
extendedKeyUsage = serverAuth
"""


class Certificates:
    """A certificate for localhost, its authority, and an authority that signed nothing.

    Attributes:
        ca: trust this one.
        stranger_ca: trust only this one, and the server must be refused.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = directory / "ca.crt"
        self.stranger_ca = directory / "stranger.crt"
        self.certificate = directory / "server.crt"
        self.key = directory / "server.key"

    def make(self) -> None:
        """Write the files; ServerMissingError without the openssl command."""
        for name in ("ca", "stranger"):
            self._openssl("req", *_CA, *_KEY, *self._named(name), "-out", f"{name}.crt")
        self._openssl("req", *_KEY, *self._named("server"), "-out", "server.csr")
        (self.directory / "server.ext").write_text(_EXTENSIONS)
        signer = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
        request = ("-req", "-in", "server.csr", "-extfile", "server.ext")
        self._openssl("x509", *request, *signer, "-out", "server.crt")

    @staticmethod
    def _named(name: str) -> tuple[str, ...]:
        return ("-subj", f"/CN=aiocosid tests {name}", "-keyout", f"{name}.key")

    def _openssl(self, *words: str) -> None:
        openssl = find_program("openssl", remedy="apt-get install openssl")
        subprocess.run([openssl, *words], cwd=self.directory, check=True, capture_output=True)
