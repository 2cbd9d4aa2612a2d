"""What a worker has to fetch before it can take part, as a machine: which piece to ask for next, what has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from voicebench.errors import WireError
from voicebench.scenario.shipping import MAX_ASSET_BYTES, clips_of, sha_of
from voicebench.wire.messages import PIECE_BYTES, AssetPiece, WantAsset

IN_FLIGHT = 4
LOOKED_AT_BYTES = 8 << 20
"""Of kept audio, at a time: a gigabyte takes seconds to read and check, in which the thread would send no beat."""
ASK_AGAIN_S = 2.0


@dataclass(slots=True)
class _Asset:
    looked: bool = False
    """Whether it is known not to be here already."""
    size: int | None = None
    data: bytearray = field(default_factory=bytearray)
    asked_s: float | None = None
    """When the next piece was asked for; pieces of one asset come one after the other."""


class Fetching:
    """The scenarios first, then the audio that they name and that is not here yet."""

    def __init__(
        self, scenarios: Sequence[str], *, have: Callable[[str], bytes | None], keep: Callable[[str, bytes], None]
    ) -> None:
        """
        Args:
            scenarios: Names of scenario assets, in their order.
            have: Audio that is here already.
            keep: Takes audio that was fetched.
        """
        self._have = have
        self._keep = keep
        self._wanted: dict[str, _Asset] = {name: _Asset(looked=True) for name in scenarios}
        self._names = tuple(scenarios)
        self.scenarios: dict[str, bytes] = {}
        self.audio: dict[str, bytes] = {}

    @property
    def done(self) -> bool:
        return not self._wanted

    def asks(self, epoch: int, now_s: float) -> list[WantAsset]:
        """Pieces to ask for now."""
        self._look()
        asks: list[WantAsset] = []
        for name, asset in islice(self._wanted.items(), IN_FLIGHT):
            if not asset.looked:
                break
            if asset.asked_s is None or now_s - asset.asked_s > ASK_AGAIN_S:
                asset.asked_s = now_s
                asks.append(WantAsset(epoch=epoch, sha=name, offset=len(asset.data)))
        return asks

    def hear(self, piece: AssetPiece) -> None:
        """A piece has come; one that was not asked for, or comes twice, is ignored.

        Raises:
            WireError: It can't be part of what was promised.
        """
        asset = self._wanted.get(piece.sha)
        if asset is None or piece.offset != len(asset.data):
            return
        whole = piece.size <= MAX_ASSET_BYTES and asset.size in (None, piece.size)
        expected = min(PIECE_BYTES, piece.size - piece.offset)
        if not whole or len(piece.data) != expected:
            raise WireError(f"the master sent a piece of {piece.sha[:12]} that does not fit")
        asset.size, asset.asked_s = piece.size, None
        asset.data += piece.data
        if len(asset.data) == piece.size:
            self._complete(piece.sha, bytes(asset.data))

    def _complete(self, name: str, data: bytes) -> None:
        if sha_of(data) != name:
            raise WireError(f"what the master sent as {name[:12]} is something else")
        if name in self._names:
            self.scenarios[name] = data
            for clip in clips_of(data):
                if clip not in self.audio:
                    self._wanted.setdefault(clip, _Asset())
        else:
            self.audio[name] = data
            self._keep(name, data)
        del self._wanted[name]  # last: another thread takes an empty list for the end

    def _look(self) -> None:
        """Take what is here already of what would be asked for next."""
        n_bytes = 0
        for name in [name for name, asset in self._wanted.items() if not asset.looked]:
            here = self._have(name)
            if here is None:
                self._wanted[name].looked = True
                continue
            self.audio[name] = here
            del self._wanted[name]
            n_bytes += len(here)
            if n_bytes >= LOOKED_AT_BYTES:
                return
