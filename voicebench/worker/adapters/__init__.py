"""Ways to reach an agent. An adapter of your own (`module:Class`) returns these from `receive`."""

from voicebench.worker.adapters.base import Adapter, Audio, Clear, HangUp, Transcript

__all__ = ["Adapter", "Audio", "Clear", "HangUp", "Transcript"]
