"""A registry of container images on this machine, with one image made of a folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@contextmanager
def registry(folder: Path, variables: tuple[str, ...]) -> Iterator[str]:
    """Serves the folder as ``HOST:PORT/tiny:1``; gives ``HOST:PORT``."""
    blobs, manifest = _image(folder, variables)
    handler = type("Handler", (_Handler,), {"blobs": blobs, "manifest": manifest})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    blobs: dict[str, bytes]
    manifest: bytes

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        name = self.path.rpartition("/")[2]
        content, kind = self.blobs.get(name), "application/octet-stream"
        if "/manifests/" in self.path and name in ("1", _digest(self.manifest)):
            content, kind = self.manifest, _MANIFEST
        elif self.path == "/v2/":
            content = b"{}"
        self.send_response(200 if content is not None else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content or b"")))
        self.send_header("Docker-Content-Digest", _digest(content or b""))
        self.end_headers()
        if body:
            self.wfile.write(content or b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        del format, args


def _image(folder: Path, variables: tuple[str, ...]) -> tuple[dict[str, bytes], bytes]:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.add(folder, arcname=".", filter=_of_root)
    layer = gzip.compress(made.getvalue(), mtime=0)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": list(variables)},
            "rootfs": {"type": "layers", "diff_ids": [_digest(made.getvalue())]},
        }
    ).encode()
    kinds = {"config": "application/vnd.oci.image.config.v1+json"}
    layer_kind = "application/vnd.oci.image.layer.v1.tar+gzip"
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": {"mediaType": kinds["config"], "digest": _digest(config), "size": len(config)},
        "layers": [{"mediaType": layer_kind, "digest": _digest(layer), "size": len(layer)}],
    }
    return {_digest(layer): layer, _digest(config): config}, json.dumps(manifest).encode()


def _of_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.mtime = 0
    return info


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
