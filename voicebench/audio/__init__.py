"""Levels, tracks, files and synthesis: bytes and arrays in, arrays and bytes out."""
