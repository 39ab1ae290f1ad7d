"""What the eddy remembers: columns, row stores and the indexes over them."""
