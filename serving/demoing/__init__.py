"""`make demo`: trains small models with several encodings, exports, serves, measures and studies them; one page."""
