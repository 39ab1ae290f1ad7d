"""Hosts run eddies: they fetch rows, push them in and hand results on."""
