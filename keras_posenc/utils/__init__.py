"""Arithmetic on positions, folding and checks that the encodings and layers share."""
