"""Figures of the analyses. Each function returns a matplotlib figure and saves nothing."""
