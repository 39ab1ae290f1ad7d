"""The papers' experiments on this engine. Each file is one family; `observe.figures` runs them."""
