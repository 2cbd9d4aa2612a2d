"""What a worker has to fetch before it can take part, as a machine: which piece to ask for next, what has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from voicebench.errors import WireError
from voicebench.scenario.shipping import MAX_ASSET_BYTES, clips_of, sha_of
from voicebench.wire.messages import PIECE_BYTES, AssetPiece, WantAsset

IN_FLIGHT = 4
ASK_AGAIN_S = 2.0


@dataclass(slots=True)
class _Asset:
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
        self._wanted: dict[str, _Asset] = {name: _Asset() for name in scenarios}
        self._n_scenarios_left = len(self._wanted)
        self._names = tuple(scenarios)
        self.scenarios: dict[str, bytes] = {}
        self.audio: dict[str, bytes] = {}

    @property
    def done(self) -> bool:
        return not self._wanted

    def asks(self, epoch: int, now_s: float) -> list[WantAsset]:
        """Pieces to ask for now."""
        asks: list[WantAsset] = []
        for name, asset in list(self._wanted.items())[:IN_FLIGHT]:
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
                self._want(clip)
        else:
            self.audio[name] = data
            self._keep(name, data)
        del self._wanted[name]  # last: another thread takes an empty list for the end

    def _want(self, clip: str) -> None:
        if clip in self.audio or clip in self._wanted:
            return
        here = self._have(clip)
        if here is None:
            self._wanted[clip] = _Asset()
        else:
            self.audio[clip] = here
