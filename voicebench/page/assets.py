"""The files of web/, read and compressed once."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOLDERS = ("js", "vendor")
FILES = ("index.html", "style.css")


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    compressed: bytes
    media_type: str
    etag: str


def web_folder() -> Path:
    """Where the page's sources are: in the package, or beside it in a working copy."""
    package = Path(__file__).parents[1]
    installed = package / "web"
    return installed if installed.is_dir() else package.parent / "web"


def load_assets(folder: Path) -> dict[str, Asset]:
    """Everything a browser may ask for, by its path."""
    paths = [folder / name for name in FILES if (folder / name).is_file()]
    for name in FOLDERS:
        paths += sorted(path for path in (folder / name).rglob("*") if path.suffix in TYPES)
    return {path.relative_to(folder).as_posix(): _asset(path) for path in paths}


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(
        content=content,
        compressed=gzip.compress(content, 9, mtime=0),
        media_type=TYPES[path.suffix],
        etag=hashlib.sha256(content).hexdigest()[:16],
    )
