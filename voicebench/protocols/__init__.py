"""What agents speak: bytes to session events and back, without a socket."""
